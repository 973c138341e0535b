"""What the database itself guarantees: used content never changes, and the application owns no table.

Revision 0002, after 0001.
"""

from alembic import context, op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

REFUSE = """
CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% of % is refused: its rows are kept for ever', TG_OP, TG_TABLE_NAME
        USING ERRCODE = 'restrict_violation';
END $$;
"""

REFUSE_USED = """
CREATE FUNCTION refuse_change_of_used_version() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.used_at IS NULL THEN
        RETURN CASE TG_OP WHEN 'DELETE' THEN OLD ELSE NEW END;
    END IF;
    IF TG_OP = 'DELETE' OR (NEW.profile_id, NEW.number, NEW.content, NEW.digest, NEW.used_at)
            IS DISTINCT FROM (OLD.profile_id, OLD.number, OLD.content, OLD.digest, OLD.used_at) THEN
        RAISE EXCEPTION '% of version % of profile % is refused: it was first used at %',
            TG_OP, OLD.number, OLD.profile_id, OLD.used_at USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NEW;
END $$;
"""

KEPT_FOR_EVER = ("profile_contents", "plans")


def upgrade() -> None:
    op.execute(REFUSE)
    op.execute(REFUSE_USED)
    for table in KEPT_FOR_EVER:
        op.execute(
            f"CREATE TRIGGER {table}_kept BEFORE UPDATE OR DELETE ON {table} "
            "FOR EACH ROW EXECUTE FUNCTION refuse_change()"
        )
    for table in (*KEPT_FOR_EVER, "profile_versions"):
        op.execute(
            f"CREATE TRIGGER {table}_no_truncate BEFORE TRUNCATE ON {table} "
            "FOR EACH STATEMENT EXECUTE FUNCTION refuse_change()"
        )
    op.execute(
        "CREATE TRIGGER profile_versions_used BEFORE UPDATE OR DELETE ON profile_versions "
        "FOR EACH ROW EXECUTE FUNCTION refuse_change_of_used_version()"
    )
    for table in KEPT_FOR_EVER:
        op.execute(
            f"ALTER TABLE {table} ADD CONSTRAINT ck_{table}_digest_of_content "
            "CHECK (digest = 'sha256:' || encode(sha256(convert_to(content, 'UTF8')), 'hex'))"
        )
    op.execute("CREATE TABLE log_chunks_default PARTITION OF log_chunks DEFAULT")

    role = context.config.attributes["app_role"]
    op.execute(f"GRANT USAGE ON SCHEMA public TO {role}")
    op.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {role}")
    op.execute(f"GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO {role}")
    op.execute(
        f"ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO {role}"
    )
    op.execute(f"ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT USAGE ON SEQUENCES TO {role}")
    op.execute(f"REVOKE UPDATE, DELETE ON {', '.join(KEPT_FOR_EVER)} FROM {role}")
    op.execute(f"REVOKE INSERT, UPDATE, DELETE ON alembic_version FROM {role}")


def downgrade() -> None:
    op.execute("DROP TABLE log_chunks_default")
    op.execute("DROP FUNCTION refuse_change CASCADE")
    op.execute("DROP FUNCTION refuse_change_of_used_version CASCADE")
