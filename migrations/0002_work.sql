-- What happens to an action: votes, the token's nonce, the one execution, its cards, and the two queues.

CREATE TABLE votes (
  action_id      uuid        NOT NULL,
  tenant         text        NOT NULL,
  barred_person  text        NOT NULL,
  person         text        NOT NULL,
  verdict        text        NOT NULL CHECK (verdict IN ('approve', 'deny')),   -- mutable: approve may become deny
  groups         text[]      NOT NULL,
  platform       text        NOT NULL CHECK (platform IN ('slack', 'discord')),
  installation   text        NOT NULL,
  user_id        text        NOT NULL,
  callback_id    text        NOT NULL,
  voted_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (action_id, person),                                -- one vote a person
  UNIQUE (platform, installation, callback_id),
  FOREIGN KEY (action_id, tenant, barred_person) REFERENCES actions (id, tenant, barred_person) ON DELETE CASCADE,
  CONSTRAINT votes_not_by_the_barred_person CHECK (verdict = 'deny' OR person <> barred_person)
);

-- Insert only. The nonce alone makes no token: the MAC needs a key that is not in this database.
CREATE TABLE tokens (
  action_id  uuid        PRIMARY KEY REFERENCES actions (id) ON DELETE CASCADE,
  nonce      bytea       NOT NULL CHECK (octet_length(nonce) = 32),
  issued_at  timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- The primary key is the promise: one execution an action, ever.
CREATE TABLE intents (
  action_id        uuid        PRIMARY KEY REFERENCES actions (id) ON DELETE CASCADE,
  tenant           text        NOT NULL,
  agent            text        NOT NULL,
  idempotency_key  text        NOT NULL UNIQUE,
  state            text        NOT NULL DEFAULT 'claimed'
                   CHECK (state IN ('claimed', 'succeeded', 'failed', 'outcome_unknown')),
  claimed_by       text        NOT NULL,                          -- the claim's own random id: the fence
  claimed_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
  sent_at          timestamptz,                                   -- set immediately before the first byte
  deadline         timestamptz NOT NULL,
  finished_at      timestamptz,
  detail           text,
  result           bytea,                                         -- the upstream's result as JSON text, when it was kept
  CHECK ((state = 'claimed') = (finished_at IS NULL)),
  CHECK (state IN ('claimed', 'succeeded') OR detail IS NOT NULL)
);
CREATE INDEX intents_overdue ON intents (deadline) WHERE state = 'claimed';

-- One row for every message that was or may have been posted; the handle is what its buttons carry.
CREATE TABLE cards (
  handle        text        PRIMARY KEY,
  action_id     uuid        NOT NULL REFERENCES actions (id) ON DELETE CASCADE,
  tenant        text        NOT NULL,
  platform      text        NOT NULL CHECK (platform IN ('slack', 'discord')),
  installation  text        NOT NULL,
  channel       text        NOT NULL,
  message_id    text,                                             -- NULL until the platform or a click has told it
  permalink     text,
  revision      integer     NOT NULL,                             -- the action's revision that it shows
  created_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
  UNIQUE (platform, installation, channel, message_id)
);
CREATE INDEX cards_of_action ON cards (action_id);

-- What is still to be done outside. One row a destination: one writer a message, and only the newest state is shown.
CREATE TABLE outbox (
  id           bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  action_id    uuid        NOT NULL REFERENCES actions (id) ON DELETE CASCADE,
  tenant       text        NOT NULL,
  destination  text        NOT NULL,
  kind         text        NOT NULL CHECK (kind IN ('card', 'note')),
  detail       text        NOT NULL DEFAULT '',                   -- of a note: whom and what, as JSON
  revision     integer     NOT NULL DEFAULT 0,
  attempts     integer     NOT NULL DEFAULT 0,                    -- the fencing number
  not_before   timestamptz NOT NULL DEFAULT clock_timestamp(),    -- also the lease
  lease_owner  text,
  UNIQUE (action_id, destination, kind, detail)
);
CREATE INDEX outbox_due ON outbox (not_before);
ALTER TABLE outbox SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);

-- Every change that a card shows goes to every card, whichever statement makes it. A row that is leased already only
-- learns the newer revision: its worker looks again when it is done.
CREATE FUNCTION actions_show() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO outbox (action_id, tenant, destination, kind, revision)
  SELECT NEW.id, NEW.tenant, place, 'card', NEW.revision FROM unnest(NEW.post_to) AS place
  ON CONFLICT (action_id, destination, kind, detail)
    DO UPDATE SET revision = greatest(outbox.revision, excluded.revision);
  RETURN NULL;
END $$;
CREATE TRIGGER actions_show AFTER UPDATE ON actions FOR EACH ROW
  WHEN (NEW.revision <> OLD.revision) EXECUTE FUNCTION actions_show();

-- The durable inbox of presses, and the memory of those already seen.
CREATE TABLE callbacks (
  platform      text        NOT NULL CHECK (platform IN ('slack', 'discord')),
  installation  text        NOT NULL,
  callback_id   text        NOT NULL,
  press         bytea       NOT NULL,
  received_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
  decided_at    timestamptz,
  result        text,
  PRIMARY KEY (platform, installation, callback_id),
  CHECK ((decided_at IS NULL) = (result IS NULL))
);
CREATE INDEX callbacks_undecided ON callbacks (received_at) WHERE decided_at IS NULL;
CREATE INDEX callbacks_decided ON callbacks (decided_at) WHERE decided_at IS NOT NULL;
