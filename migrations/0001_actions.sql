-- Parked actions. Everything that was approved is immutable; the guard says so once more than the code does.
CREATE TABLE actions (
  id              uuid        PRIMARY KEY,                       -- immutable
  tenant          text        NOT NULL,                          -- immutable
  agent           text        NOT NULL,                          -- immutable
  owner           text,                                          -- immutable
  run             text,                                          -- immutable
  upstream        text        NOT NULL,                          -- immutable
  environment     text,                                          -- immutable
  tool            text        NOT NULL,                          -- immutable
  tool_version    bytea       NOT NULL CHECK (octet_length(tool_version) = 32),      -- immutable
  policy_version  bytea       NOT NULL CHECK (octet_length(policy_version) = 32),    -- immutable
  requirement     bytea       NOT NULL,                          -- immutable, canonical bytes
  preconditions   bytea       NOT NULL,                          -- immutable, canonical bytes
  arguments       bytea       NOT NULL CHECK (octet_length(arguments) <= 262144),    -- immutable, canonical bytes
  content_digest  bytea       NOT NULL CHECK (octet_length(content_digest) = 32),    -- immutable
  action_digest   bytea       NOT NULL CHECK (octet_length(action_digest) = 32),     -- immutable
  barred_person   text        NOT NULL DEFAULT '',               -- immutable: the owner where separate_proposer holds, else ''
  preview         bytea       NOT NULL,                          -- immutable, canonical bytes as rendered
  facts           bytea       NOT NULL,                          -- immutable, canonical bytes as read for the preview
  rules           text[]      NOT NULL,                          -- immutable: names of the rules that matched
  risk            text        NOT NULL CHECK (risk IN ('medium', 'high', 'critical')),  -- immutable
  post_to         text[]      NOT NULL CHECK (cardinality(post_to) > 0),             -- immutable
  created_at      timestamptz NOT NULL DEFAULT clock_timestamp(),  -- immutable
  expires_at      timestamptz NOT NULL,                          -- immutable: the deadline of the decision
  redeem_within   interval    NOT NULL,                          -- immutable
  state           text        NOT NULL DEFAULT 'pending' CHECK (state IN
                  ('pending', 'approved', 'executing', 'succeeded', 'failed', 'outcome_unknown',
                   'denied', 'expired', 'cancelled', 'invalidated', 'undeliverable', 'returned')),
  reason          text,                                          -- mutable: why it was voided or sent back
  revision        integer     NOT NULL DEFAULT 0,                -- mutable: counts every change that a card shows
  decided_at      timestamptz,                                   -- mutable: when it left pending; a deny after an approval sets it anew
  redeem_by       timestamptz,                                   -- set once, by the guard at the approval
  redeemed_at     timestamptz,                                   -- set once, by the guard at the claim
  CONSTRAINT actions_expire_after_parking CHECK (expires_at > created_at),
  CONSTRAINT actions_decided_unless_pending CHECK ((state = 'pending') = (decided_at IS NULL)),
  CONSTRAINT actions_redeemed_when_executed
    CHECK ((state IN ('executing', 'succeeded', 'failed', 'outcome_unknown')) = (redeemed_at IS NOT NULL)),
  CONSTRAINT actions_approved_has_deadline
    CHECK (state NOT IN ('approved', 'executing', 'succeeded', 'failed', 'outcome_unknown') OR redeem_by IS NOT NULL),
  CONSTRAINT actions_voided_has_reason CHECK (state NOT IN ('invalidated', 'returned') OR reason IS NOT NULL),
  UNIQUE (id, tenant, barred_person)
);

-- One live action for one call: identical calls find it and no second card goes out.
CREATE UNIQUE INDEX actions_live_content ON actions (tenant, content_digest)
  WHERE state IN ('pending', 'approved', 'executing', 'outcome_unknown');
CREATE INDEX actions_denied ON actions (tenant, content_digest, decided_at DESC) WHERE state = 'denied';
CREATE INDEX actions_due ON actions (coalesce(redeem_by, expires_at)) WHERE state IN ('pending', 'approved');
CREATE INDEX actions_recent ON actions (tenant, id DESC);

CREATE FUNCTION actions_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF (OLD.id, OLD.tenant, OLD.agent, OLD.owner, OLD.run, OLD.upstream, OLD.environment, OLD.tool, OLD.tool_version,
      OLD.policy_version, OLD.requirement, OLD.preconditions, OLD.arguments, OLD.content_digest, OLD.action_digest,
      OLD.barred_person, OLD.preview, OLD.facts, OLD.rules, OLD.risk, OLD.post_to, OLD.created_at, OLD.expires_at,
      OLD.redeem_within)
     IS DISTINCT FROM
     (NEW.id, NEW.tenant, NEW.agent, NEW.owner, NEW.run, NEW.upstream, NEW.environment, NEW.tool, NEW.tool_version,
      NEW.policy_version, NEW.requirement, NEW.preconditions, NEW.arguments, NEW.content_digest, NEW.action_digest,
      NEW.barred_person, NEW.preview, NEW.facts, NEW.rules, NEW.risk, NEW.post_to, NEW.created_at, NEW.expires_at,
      NEW.redeem_within)
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

CREATE TRIGGER actions_guard BEFORE UPDATE ON actions FOR EACH ROW EXECUTE FUNCTION actions_guard();
