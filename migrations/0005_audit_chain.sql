-- The chain over the audit trail. Events are written by the statements that make the changes; a sequencer gives each its
-- place in its tenant's chain within a second, so that no writer ever waits for another's.

-- Events that have no place yet. The trigger, and no statement, fills it: none can forget.
CREATE TABLE audit_pending (
  event_id  bigint      NOT NULL,
  event_at  timestamptz NOT NULL,
  PRIMARY KEY (event_id, event_at)
);
ALTER TABLE audit_pending SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);

CREATE FUNCTION audit_events_await_their_place() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO audit_pending (event_id, event_at) VALUES (NEW.id, NEW.at);
  RETURN NULL;
END $$;
CREATE TRIGGER audit_events_await_their_place AFTER INSERT ON audit_events
  FOR EACH ROW EXECUTE FUNCTION audit_events_await_their_place();

-- `hash` is SHA-256 over the canonical bytes of the event as exported, with `seq` and `prev`, without `hash` and what is
-- erasable. The two keys make a fork impossible: a place is given once, and an event has one place.
CREATE TABLE audit_chain (
  tenant    text        NOT NULL,
  seq       bigint      NOT NULL CHECK (seq > 0),
  event_id  bigint      NOT NULL UNIQUE,
  event_at  timestamptz NOT NULL,
  prev      bytea       NOT NULL CHECK (octet_length(prev) = 32),
  hash      bytea       NOT NULL CHECK (octet_length(hash) = 32),
  PRIMARY KEY (tenant, seq)
);
CREATE TRIGGER audit_chain_no_change BEFORE UPDATE OR DELETE ON audit_chain
  FOR EACH ROW EXECUTE FUNCTION audit_is_append_only();
CREATE TRIGGER audit_chain_no_truncate BEFORE TRUNCATE ON audit_chain
  FOR EACH STATEMENT EXECUTE FUNCTION audit_is_append_only();

-- Where each chain ends. It moves forward and in no other way.
CREATE TABLE audit_head (
  tenant  text    PRIMARY KEY,
  seq     bigint  NOT NULL,
  hash    bytea   NOT NULL CHECK (octet_length(hash) = 32)
);
CREATE FUNCTION audit_head_moves_forward() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF TG_OP = 'UPDATE' AND NEW.tenant = OLD.tenant AND NEW.seq > OLD.seq THEN RETURN NEW; END IF;
  RAISE EXCEPTION 'the head of an audit chain only moves forward: % on %', TG_OP, TG_TABLE_NAME
    USING ERRCODE = 'integrity_constraint_violation', CONSTRAINT = 'audit_is_append_only';
END $$;
CREATE TRIGGER audit_head_moves_forward BEFORE UPDATE OR DELETE ON audit_head
  FOR EACH ROW EXECUTE FUNCTION audit_head_moves_forward();
CREATE TRIGGER audit_head_no_truncate BEFORE TRUNCATE ON audit_head
  FOR EACH STATEMENT EXECUTE FUNCTION audit_is_append_only();

-- Heads that were signed with a key that is not in this database. `signed` is the checkpoint as exported.
CREATE TABLE audit_checkpoints (
  tenant      text        NOT NULL,
  seq         bigint      NOT NULL,
  public_key  bytea       NOT NULL CHECK (octet_length(public_key) = 32),
  at          timestamptz NOT NULL,
  signed      bytea       NOT NULL,
  PRIMARY KEY (tenant, seq, public_key)
);
CREATE TRIGGER audit_checkpoints_no_change BEFORE UPDATE OR DELETE ON audit_checkpoints
  FOR EACH ROW EXECUTE FUNCTION audit_is_append_only();
CREATE TRIGGER audit_checkpoints_no_truncate BEFORE TRUNCATE ON audit_checkpoints
  FOR EACH STATEMENT EXECUTE FUNCTION audit_is_append_only();

-- Emptied together, and once.
CREATE OR REPLACE FUNCTION audit_subjects_only_empty() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF TG_OP = 'UPDATE' AND NEW.event_id = OLD.event_id AND NEW.event_at = OLD.event_at
     AND OLD.subject IS NOT NULL AND NEW.subject IS NULL AND NEW.salt IS NULL
  THEN RETURN NEW; END IF;
  RAISE EXCEPTION 'audit subjects are never changed, only emptied'
    USING ERRCODE = 'integrity_constraint_violation', CONSTRAINT = 'audit_is_append_only';
END $$;

-- What was written before there was a chain gets its place like everything else, oldest first.
INSERT INTO audit_pending (event_id, event_at) SELECT id, at FROM audit_events;
