-- What bounds how much agents may ask of people, and how much of it goes to one channel at a time.

-- Whether two denied proposals amount to the same; NULL in rows from before.
ALTER TABLE actions ADD COLUMN cosmetic_digest bytea CHECK (octet_length(cosmetic_digest) = 32);      -- immutable
-- Who is asked: for the limit of what a group has pending.
ALTER TABLE actions ADD COLUMN asked_groups text[] NOT NULL DEFAULT '{}';                              -- immutable

CREATE INDEX actions_denied_alike ON actions (tenant, cosmetic_digest, decided_at DESC) WHERE state = 'denied';
CREATE INDEX actions_denied_of_agent ON actions (tenant, agent, decided_at DESC) WHERE state = 'denied';
CREATE INDEX actions_of_agent ON actions (tenant, agent, created_at DESC);
CREATE INDEX actions_pending ON actions (tenant, agent) WHERE state = 'pending';

-- One row for each thing that is limited: the lock that its users take turns by, and until when it is closed. A channel
-- belongs to no tenant (''); a turn is when an agent's card last went to a channel.
CREATE TABLE limits (
  tenant   text        NOT NULL,
  kind     text        NOT NULL CHECK (kind IN ('agent', 'owner', 'group', 'channel', 'turn')),
  subject  text        NOT NULL,
  until    timestamptz,
  reason   text,
  PRIMARY KEY (tenant, kind, subject)
);

CREATE FUNCTION limits_lock(of_tenant text, of_kind text, of_subject text) RETURNS limits LANGUAGE sql VOLATILE AS $$
  INSERT INTO limits (tenant, kind, subject) VALUES (of_tenant, of_kind, of_subject)
  ON CONFLICT (tenant, kind, subject) DO UPDATE SET kind = excluded.kind
  RETURNING *
$$;

-- Whether an agent may ask for one more approval: NULL, or what stands against it. Its asks take turns by the row lock,
-- and each statement of a volatile function sees what was committed before it: so no limit is overrun, however many
-- ask at once, and a call that was parked or denied a moment ago is found.
CREATE FUNCTION limits_admit(
  of_tenant text, of_agent text, of_owner text, of_groups text[], of_content bytea, of_cosmetic bytea,
  memory interval, per_minute integer, per_agent integer, per_owner integer, per_group integer
) RETURNS text LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  agent_row limits;
  asked text;
BEGIN
  agent_row := limits_lock(of_tenant, 'agent', of_agent);
  IF EXISTS (SELECT FROM actions WHERE tenant = of_tenant AND content_digest = of_content
               AND state IN ('pending', 'approved', 'executing', 'outcome_unknown')) THEN
    RETURN 'standing';
  END IF;
  IF EXISTS (SELECT FROM actions WHERE tenant = of_tenant AND content_digest = of_content AND state = 'denied'
               AND (memory IS NULL OR decided_at > clock_timestamp() - memory)) THEN
    RETURN 'denied';
  END IF;
  IF EXISTS (SELECT FROM actions WHERE tenant = of_tenant AND cosmetic_digest = of_cosmetic AND state = 'denied'
               AND (memory IS NULL OR decided_at > clock_timestamp() - memory)) THEN
    RETURN 'denied_recently';
  END IF;
  IF agent_row.until > clock_timestamp() THEN
    RETURN 'paused';
  END IF;
  IF (SELECT count(*) FROM (SELECT FROM actions WHERE tenant = of_tenant AND agent = of_agent
                              AND created_at > clock_timestamp() - interval '1 minute' LIMIT per_minute) AS asked)
     >= per_minute THEN
    RETURN 'asks_per_minute';
  END IF;
  IF (SELECT count(*) FROM actions WHERE tenant = of_tenant AND agent = of_agent AND state = 'pending') >= per_agent THEN
    RETURN 'pending_per_agent';
  END IF;
  IF per_owner IS NOT NULL AND of_owner IS NOT NULL THEN
    PERFORM limits_lock(of_tenant, 'owner', of_owner);
    IF (SELECT count(*) FROM actions WHERE tenant = of_tenant AND owner = of_owner AND state = 'pending') >= per_owner THEN
      RETURN 'pending_per_owner';
    END IF;
  END IF;
  IF per_group IS NOT NULL THEN
    -- In one order for everybody, so that two asks never wait for each other.
    FOR asked IN SELECT unnest(of_groups) ORDER BY 1 LOOP
      PERFORM limits_lock(of_tenant, 'group', asked);
      IF (SELECT count(*) FROM actions WHERE tenant = of_tenant AND state = 'pending' AND asked = ANY (asked_groups))
         >= per_group THEN
        RETURN 'pending_per_group';
      END IF;
    END LOOP;
  END IF;
  RETURN NULL;
END $$;

-- Pauses an agent after its denials, in the transaction of the denial that is one too many. Whether it did.
CREATE FUNCTION limits_pause(
  of_tenant text, of_agent text, denials integer, within interval, pause_for interval
) RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  agent_row limits;
BEGIN
  agent_row := limits_lock(of_tenant, 'agent', of_agent);
  IF agent_row.until > clock_timestamp() THEN
    RETURN false;
  END IF;
  -- Denials that led to a pause already are spent.
  IF (SELECT count(*) FROM actions WHERE tenant = of_tenant AND agent = of_agent AND state = 'denied'
        AND decided_at > greatest(clock_timestamp() - within, coalesce(agent_row.until, '-infinity'))) < denials THEN
    RETURN false;
  END IF;
  UPDATE limits SET until = clock_timestamp() + pause_for, reason = 'denials'
   WHERE tenant = of_tenant AND kind = 'agent' AND subject = of_agent;
  RETURN true;
END $$;

-- A message to a channel that is about an action and is no card of it.
ALTER TABLE outbox DROP CONSTRAINT outbox_kind_check;
ALTER TABLE outbox ADD CONSTRAINT outbox_kind_check CHECK (kind IN ('card', 'note', 'alert'));
-- Whose it is, so that one agent's flood does not hold up the others' cards; and whether it is a new message, of which
-- platforms take about one a second in a channel.
ALTER TABLE outbox ADD COLUMN agent text NOT NULL DEFAULT '';
ALTER TABLE outbox ADD COLUMN posts boolean NOT NULL DEFAULT false;
CREATE INDEX outbox_posts ON outbox (destination, not_before) WHERE posts;

CREATE OR REPLACE FUNCTION actions_show() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO outbox (action_id, tenant, agent, destination, kind, revision)
  SELECT NEW.id, NEW.tenant, NEW.agent, place, 'card', NEW.revision FROM unnest(NEW.post_to) AS place
  ON CONFLICT (action_id, destination, kind, detail)
    DO UPDATE SET revision = greatest(outbox.revision, excluded.revision),
                  -- What is over is not posted any more, and must not take a turn from what is not.
                  posts = outbox.posts AND NEW.state = 'pending';
  RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION actions_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF (OLD.id, OLD.tenant, OLD.agent, OLD.owner, OLD.run, OLD.upstream, OLD.environment, OLD.tool, OLD.tool_version,
      OLD.policy_version, OLD.requirement, OLD.preconditions, OLD.arguments, OLD.content_digest, OLD.action_digest,
      OLD.barred_person, OLD.preview, OLD.facts, OLD.rules, OLD.risk, OLD.post_to, OLD.created_at, OLD.expires_at,
      OLD.redeem_within, OLD.cosmetic_digest, OLD.asked_groups)
     IS DISTINCT FROM
     (NEW.id, NEW.tenant, NEW.agent, NEW.owner, NEW.run, NEW.upstream, NEW.environment, NEW.tool, NEW.tool_version,
      NEW.policy_version, NEW.requirement, NEW.preconditions, NEW.arguments, NEW.content_digest, NEW.action_digest,
      NEW.barred_person, NEW.preview, NEW.facts, NEW.rules, NEW.risk, NEW.post_to, NEW.created_at, NEW.expires_at,
      NEW.redeem_within, NEW.cosmetic_digest, NEW.asked_groups)
     OR OLD.redeem_by IS NOT NULL AND NEW.redeem_by IS DISTINCT FROM OLD.redeem_by
     OR OLD.redeemed_at IS NOT NULL AND NEW.redeemed_at IS DISTINCT FROM OLD.redeemed_at
  THEN
    RAISE EXCEPTION 'action % is immutable', OLD.id
      USING ERRCODE = 'integrity_constraint_violation', CONSTRAINT = 'actions_guard_immutable';
  END IF;
  IF OLD.state <> NEW.state AND (OLD.state || '>' || NEW.state) NOT IN (
     'pending>approved', 'pending>denied', 'pending>expired', 'pending>cancelled', 'pending>invalidated',
     'pending>undeliverable', 'pending>returned',
     'approved>executing', 'approved>denied', 'approved>expired', 'approved>cancelled', 'approved>invalidated',
     'executing>succeeded', 'executing>failed', 'executing>outcome_unknown',
     'outcome_unknown>succeeded', 'outcome_unknown>failed')
  THEN
    RAISE EXCEPTION 'illegal transition % -> % of action %', OLD.state, NEW.state, OLD.id
      USING ERRCODE = 'integrity_constraint_violation', CONSTRAINT = 'actions_guard_transition';
  END IF;
  IF OLD.state <> NEW.state THEN NEW.revision := OLD.revision + 1; END IF;
  -- A BEFORE ROW trigger runs once the row lock is held, so this clock is true; a WHERE clause is evaluated before a
  -- lock wait. Too late gives NULL: no row is updated.
  IF OLD.state = 'pending' AND NEW.state = 'approved' THEN
    NEW.decided_at := clock_timestamp();
    IF NEW.decided_at >= OLD.expires_at THEN RETURN NULL; END IF;
    NEW.redeem_by := NEW.decided_at + OLD.redeem_within;
  ELSIF OLD.state = 'approved' AND NEW.state = 'executing' THEN
    NEW.redeemed_at := clock_timestamp();
    IF NEW.redeemed_at >= OLD.redeem_by THEN RETURN NULL; END IF;
  END IF;
  RETURN NEW;
END $$;

-- Every action begins as pending: no other way leads past the guard.
CREATE FUNCTION actions_begin() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF NEW.state <> 'pending' OR NEW.revision <> 0 THEN
    RAISE EXCEPTION 'action % must begin as pending', NEW.id
      USING ERRCODE = 'integrity_constraint_violation', CONSTRAINT = 'actions_guard_begin';
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER actions_begin BEFORE INSERT ON actions FOR EACH ROW EXECUTE FUNCTION actions_begin();
