-- Roles for undersign's database: who owns it, who serves, who reads, who erases.
--
--   psql -v ON_ERROR_STOP=1 -d DATABASE -f roles.sql
--
-- Run it as a superuser in undersign's database once the schema is there (`undersign migrate`), and again after each
-- upgrade: it can be run as often as you like. The roles have no passwords yet: ALTER ROLE undersign_app PASSWORD '…'.
-- Then migrate with a URL of undersign_owner, and serve with one of undersign_app and `migrate = false`.

DO $$
DECLARE
  name text;
BEGIN
  FOREACH name IN ARRAY ARRAY['undersign_owner', 'undersign_app', 'undersign_audit', 'undersign_retention'] LOOP
    BEGIN
      EXECUTE format('CREATE ROLE %I LOGIN', name);
    EXCEPTION WHEN duplicate_object OR unique_violation THEN
      NULL;                                             -- roles belong to the whole cluster: another database has made it
    END;
  END LOOP;
END $$;

REVOKE CREATE ON SCHEMA public FROM PUBLIC;
GRANT USAGE ON SCHEMA public TO undersign_app, undersign_audit, undersign_retention;

-- The owner: migrations, and nothing else should log in as it.
GRANT USAGE, CREATE ON SCHEMA public TO undersign_owner;
DO $$
DECLARE
  thing record;
BEGIN
  FOR thing IN
    SELECT c.oid::regclass AS name,
           CASE c.relkind WHEN 'S' THEN 'SEQUENCE' ELSE 'TABLE' END AS kind
      FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
     WHERE n.nspname = 'public' AND c.relkind IN ('r', 'p', 'S') AND pg_get_userbyid(c.relowner) <> 'undersign_owner'
       -- A sequence of an identity column follows its table.
       AND NOT EXISTS (SELECT FROM pg_depend d
                        WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype = 'i' AND c.relkind = 'S')
  LOOP
    EXECUTE format('ALTER %s %s OWNER TO undersign_owner', thing.kind, thing.name);
  END LOOP;
  FOR thing IN
    SELECT p.oid::regprocedure AS name FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
     WHERE n.nspname = 'public' AND pg_get_userbyid(p.proowner) <> 'undersign_owner'
       AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e')
  LOOP
    EXECUTE format('ALTER FUNCTION %s OWNER TO undersign_owner', thing.name);
  END LOOP;
END $$;

-- What was granted before is taken back first, so that a right that is dropped here is dropped in the database.
REVOKE ALL ON ALL TABLES IN SCHEMA public FROM PUBLIC, undersign_app, undersign_audit, undersign_retention;
REVOKE ALL ON ALL SEQUENCES IN SCHEMA public FROM PUBLIC, undersign_app, undersign_audit, undersign_retention;

-- The service. Of an action, a vote, an intent and a card it changes what has to change, by column.
GRANT SELECT, INSERT ON actions, votes, tokens, intents, cards TO undersign_app;
GRANT UPDATE (state, reason, revision, decided_at, redeem_by, redeemed_at) ON actions TO undersign_app;
GRANT UPDATE (verdict, groups, platform, installation, user_id, callback_id, voted_at) ON votes TO undersign_app;
GRANT UPDATE (state, sent_at, finished_at, detail, result) ON intents TO undersign_app;
GRANT UPDATE (message_id, permalink, revision) ON cards TO undersign_app;
GRANT SELECT, INSERT, UPDATE ON limits TO undersign_app;
GRANT SELECT, INSERT, UPDATE, DELETE ON outbox, callbacks TO undersign_app;
-- Of the audit trail it changes nothing. It queues, chains and moves the head forward, which a trigger watches over.
GRANT SELECT, INSERT ON audit_events, audit_subjects, audit_chain, audit_checkpoints TO undersign_app;
GRANT SELECT, INSERT, DELETE ON audit_pending TO undersign_app;
GRANT SELECT, INSERT ON audit_head TO undersign_app;
GRANT UPDATE (seq, hash) ON audit_head TO undersign_app;
GRANT USAGE ON SEQUENCE audit_events_id TO undersign_app, undersign_retention;
GRANT SELECT ON _sqlx_migrations TO undersign_app, undersign_audit, undersign_retention;

-- The auditor: `audit export` and `audit verify`.
GRANT SELECT ON audit_events, audit_subjects, audit_pending, audit_chain, audit_head, audit_checkpoints TO undersign_audit;

-- Retention: `audit erase`. It empties what is erasable and deletes finished actions.
GRANT SELECT, DELETE ON actions TO undersign_retention;
GRANT SELECT ON audit_subjects TO undersign_retention;
GRANT UPDATE (subject, salt) ON audit_subjects TO undersign_retention;
GRANT SELECT, INSERT ON audit_events TO undersign_retention;
GRANT INSERT ON audit_pending TO undersign_retention;
