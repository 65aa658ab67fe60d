-- The audit trail: written in the statement that makes the change, never changed afterwards.
CREATE SEQUENCE audit_events_id;

CREATE TABLE audit_events (
  id         bigint      NOT NULL DEFAULT nextval('audit_events_id'),
  at         timestamptz NOT NULL DEFAULT clock_timestamp(),
  tenant     text        NOT NULL,
  action_id  uuid,
  kind       text        NOT NULL,
  body       bytea       NOT NULL,                                -- canonical bytes of the kind's own fields
  PRIMARY KEY (id, at)
) PARTITION BY RANGE (at);
CREATE INDEX audit_events_of_action ON audit_events (action_id, id);
CREATE INDEX audit_events_of_tenant ON audit_events (tenant, id);

CREATE FUNCTION audit_is_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'audit rows are never changed: % on %', TG_OP, TG_TABLE_NAME
    USING ERRCODE = 'integrity_constraint_violation', CONSTRAINT = 'audit_is_append_only';
END $$;
CREATE TRIGGER audit_events_no_change BEFORE UPDATE OR DELETE ON audit_events
  FOR EACH ROW EXECUTE FUNCTION audit_is_append_only();
CREATE TRIGGER audit_events_no_truncate BEFORE TRUNCATE ON audit_events
  FOR EACH STATEMENT EXECUTE FUNCTION audit_is_append_only();

-- Monthly partitions for four years, and one for whatever lies beyond, so that no insert ever fails for want of one.
DO $$
DECLARE
  month date := date '2026-11-01';
  part text;
BEGIN
  FOR i IN 0..47 LOOP
    part := 'audit_events_' || to_char(month, 'YYYY_MM');
    EXECUTE format('CREATE TABLE %I PARTITION OF audit_events FOR VALUES FROM (%L) TO (%L)',
                   part, month, (month + interval '1 month')::date);
    EXECUTE format('CREATE TRIGGER %I BEFORE TRUNCATE ON %I FOR EACH STATEMENT EXECUTE FUNCTION audit_is_append_only()',
                   part || '_no_truncate', part);
    month := (month + interval '1 month')::date;
  END LOOP;
  CREATE TABLE audit_events_beyond PARTITION OF audit_events DEFAULT;
  CREATE TRIGGER audit_events_beyond_no_truncate BEFORE TRUNCATE ON audit_events_beyond
    FOR EACH STATEMENT EXECUTE FUNCTION audit_is_append_only();
END $$;

-- What holds argument values, apart from the event and behind its commitment. Both columns may be emptied together,
-- and nothing else may change.
CREATE TABLE audit_subjects (
  event_id  bigint      NOT NULL,
  event_at  timestamptz NOT NULL,
  subject   bytea,                                                -- canonical bytes of {action_subject, facts, preview}
  salt      bytea CHECK (octet_length(salt) = 32),
  PRIMARY KEY (event_id, event_at),
  CHECK ((subject IS NULL) = (salt IS NULL))
);
CREATE FUNCTION audit_subjects_only_empty() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF TG_OP = 'UPDATE' AND NEW.event_id = OLD.event_id AND NEW.event_at = OLD.event_at
     AND NEW.subject IS NULL AND NEW.salt IS NULL
  THEN RETURN NEW; END IF;
  RAISE EXCEPTION 'audit subjects are never changed, only emptied'
    USING ERRCODE = 'integrity_constraint_violation', CONSTRAINT = 'audit_is_append_only';
END $$;
CREATE TRIGGER audit_subjects_only_empty BEFORE UPDATE OR DELETE ON audit_subjects
  FOR EACH ROW EXECUTE FUNCTION audit_subjects_only_empty();
CREATE TRIGGER audit_subjects_no_truncate BEFORE TRUNCATE ON audit_subjects
  FOR EACH STATEMENT EXECUTE FUNCTION audit_is_append_only();
