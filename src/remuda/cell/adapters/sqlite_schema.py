"""The tables of a cell's SQLite file, in one place, and the check whether a file is ours to use.

A row is light columns that queries need, and a body: the whole value as JSON with its own version. The columns are
copies of what the body says; the store writes both together. `spec_id` lets all tries of a job share one spec.
"""

import sqlite3

from remuda.cell.errors import DataFolderError

SCHEMA_VERSION = 2

TABLES = """
-- One row: what this file is. A store belongs to one cell for ever, because its ids come from that cell's range.
CREATE TABLE schema_version (version INTEGER NOT NULL, cell_id INTEGER NOT NULL);

-- The last id drawn per table; ids are never used twice, not even after a removal.
CREATE TABLE sequences (name TEXT PRIMARY KEY, last INTEGER NOT NULL) WITHOUT ROWID;

-- One row that `writable` counts up, to know that a commit goes through.
CREATE TABLE probe (id INTEGER PRIMARY KEY CHECK (id = 1), writes INTEGER NOT NULL);

CREATE TABLE settings (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE signing_keys (number INTEGER PRIMARY KEY, kid TEXT NOT NULL UNIQUE, pem BLOB NOT NULL);
CREATE TABLE user_tokens (number INTEGER PRIMARY KEY, token_hash TEXT NOT NULL UNIQUE, body BLOB NOT NULL);

-- Paths are unique without regard to case: path_key and search_text are case-folded.
CREATE TABLE projects (
    id INTEGER PRIMARY KEY, path_key TEXT NOT NULL UNIQUE, search_text TEXT NOT NULL, body BLOB NOT NULL);
CREATE TABLE variables (
    project_id INTEGER NOT NULL REFERENCES projects, key TEXT NOT NULL, body BLOB NOT NULL,
    PRIMARY KEY (project_id, key)) WITHOUT ROWID;
CREATE TABLE seen_refs (
    project_id INTEGER NOT NULL REFERENCES projects, ref TEXT NOT NULL, sha TEXT NOT NULL,
    PRIMARY KEY (project_id, ref)) WITHOUT ROWID;

CREATE TABLE pipelines (
    id INTEGER PRIMARY KEY, project_id INTEGER NOT NULL REFERENCES projects, iid INTEGER NOT NULL,
    ref TEXT NOT NULL, sha TEXT NOT NULL, status TEXT NOT NULL, body BLOB NOT NULL,
    UNIQUE (project_id, iid));

CREATE TABLE specs (id INTEGER PRIMARY KEY, body BLOB NOT NULL);
CREATE TABLE jobs (
    id INTEGER PRIMARY KEY, project_id INTEGER NOT NULL, pipeline_id INTEGER NOT NULL REFERENCES pipelines,
    spec_id INTEGER NOT NULL REFERENCES specs, state TEXT NOT NULL, retried INTEGER NOT NULL,
    runner_id INTEGER, request_id TEXT, body BLOB NOT NULL);
CREATE INDEX jobs_of_pipeline ON jobs (pipeline_id, id);
CREATE INDEX jobs_of_project ON jobs (project_id, id);
CREATE INDEX jobs_by_state ON jobs (state, id);
CREATE INDEX jobs_by_request ON jobs (runner_id, request_id) WHERE state = 'leased';

CREATE TABLE runners (id INTEGER PRIMARY KEY, token_hash TEXT NOT NULL UNIQUE, body BLOB NOT NULL);
CREATE TABLE managers (
    runner_id INTEGER NOT NULL REFERENCES runners ON DELETE CASCADE, system_id TEXT NOT NULL, body BLOB NOT NULL,
    PRIMARY KEY (runner_id, system_id)) WITHOUT ROWID;

CREATE TABLE results (
    job_id INTEGER NOT NULL REFERENCES jobs, seq INTEGER NOT NULL, body BLOB NOT NULL,
    PRIMARY KEY (job_id, seq)) WITHOUT ROWID;
CREATE TABLE artifacts (
    job_id INTEGER NOT NULL REFERENCES jobs, type TEXT NOT NULL, body BLOB NOT NULL,
    PRIMARY KEY (job_id, type)) WITHOUT ROWID;
"""
"""The first schema. Later ones are this one and what the upgrades add, so that a new file and an old one are alike."""

UPGRADES = {
    2: """
ALTER TABLE pipelines ADD COLUMN upstream_job_id INTEGER;
ALTER TABLE pipelines ADD COLUMN is_child INTEGER NOT NULL DEFAULT 0;
CREATE UNIQUE INDEX pipelines_by_upstream ON pipelines (upstream_job_id);
CREATE INDEX pipelines_of_ref ON pipelines (project_id, ref, status);

-- What lists are asked by, read from the body where it is wanted.
ALTER TABLE pipelines ADD COLUMN source AS (json_extract(CAST(body AS TEXT), '$.source')) VIRTUAL;
ALTER TABLE pipelines ADD COLUMN name AS (json_extract(CAST(body AS TEXT), '$.name')) VIRTUAL;
ALTER TABLE pipelines ADD COLUMN tag AS (json_extract(CAST(body AS TEXT), '$.tag')) VIRTUAL;
ALTER TABLE pipelines ADD COLUMN yaml_errors AS (json_extract(CAST(body AS TEXT), '$.yaml_errors')) VIRTUAL;
ALTER TABLE pipelines ADD COLUMN schedule_id AS (json_extract(CAST(body AS TEXT), '$.schedule_id')) VIRTUAL;
ALTER TABLE pipelines ADD COLUMN user_id AS (json_extract(CAST(body AS TEXT), '$.user_id')) VIRTUAL;
ALTER TABLE pipelines ADD COLUMN created_at AS (json_extract(CAST(body AS TEXT), '$.created_at')) VIRTUAL;
ALTER TABLE pipelines ADD COLUMN updated_at AS (json_extract(CAST(body AS TEXT), '$.updated_at')) VIRTUAL;
CREATE INDEX pipelines_listed ON pipelines (project_id, id, is_child);
CREATE INDEX pipelines_of_schedule ON pipelines (schedule_id, id) WHERE schedule_id IS NOT NULL;

ALTER TABLE jobs ADD COLUMN resource_group TEXT;
ALTER TABLE jobs ADD COLUMN is_trigger INTEGER NOT NULL DEFAULT 0;
DROP INDEX jobs_of_project;
CREATE INDEX jobs_of_project ON jobs (project_id, id, is_trigger);
ALTER TABLE jobs ADD COLUMN ref AS (json_extract(CAST(body AS TEXT), '$.ref')) VIRTUAL;
ALTER TABLE jobs ADD COLUMN name AS (json_extract(CAST(body AS TEXT), '$.name')) VIRTUAL;
CREATE INDEX jobs_that_succeeded ON jobs (project_id, ref, name, id) WHERE state = 'success';
CREATE INDEX jobs_by_resource ON jobs (project_id, resource_group, state) WHERE resource_group IS NOT NULL;

-- next_run_at is null while a schedule is not active.
CREATE TABLE schedules (
    id INTEGER PRIMARY KEY, project_id INTEGER NOT NULL REFERENCES projects, next_run_at REAL, body BLOB NOT NULL);
CREATE INDEX schedules_of_project ON schedules (project_id, id);
CREATE INDEX schedules_by_time ON schedules (next_run_at) WHERE next_run_at IS NOT NULL;
CREATE TABLE triggers (
    id INTEGER PRIMARY KEY, project_id INTEGER NOT NULL REFERENCES projects, token_hash TEXT NOT NULL UNIQUE,
    body BLOB NOT NULL);
CREATE INDEX triggers_of_project ON triggers (project_id, id);
CREATE TABLE releases (
    project_id INTEGER NOT NULL REFERENCES projects, tag TEXT NOT NULL, released_at REAL NOT NULL, body BLOB NOT NULL,
    PRIMARY KEY (project_id, tag)) WITHOUT ROWID;
""",
}
"""What leads to each later version, in the order of versions."""


def prepare(db: sqlite3.Connection, path: str, cell_id: int) -> None:
    """Create the tables in an empty file, bring an older file up to date, or refuse one that is not this cell's."""
    db.execute("BEGIN IMMEDIATE")
    try:
        version = 1
        known = db.execute("SELECT 1 FROM sqlite_master WHERE name = 'schema_version'").fetchone()
        if known:
            version = _checked_version(db, path, cell_id)
        elif db.execute("SELECT 1 FROM sqlite_master").fetchone():
            raise DataFolderError(f"{path} is the database of something else; give another data folder")
        else:
            _run(db, TABLES)
            db.execute("INSERT INTO schema_version VALUES (?, ?)", (version, cell_id))
        for number in range(version + 1, SCHEMA_VERSION + 1):
            _run(db, UPGRADES[number])
        db.execute("UPDATE schema_version SET version = ?", (SCHEMA_VERSION,))
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


def _run(db: sqlite3.Connection, statements: str) -> None:
    for statement in statements.split(";\n"):
        db.execute(statement)


def _checked_version(db: sqlite3.Connection, path: str, cell_id: int) -> int:
    version: int
    version, owner = db.execute("SELECT version, cell_id FROM schema_version").fetchone()
    if version > SCHEMA_VERSION:
        raise DataFolderError(
            f"{path} has schema version {version}, made by a newer release; this one reads up to {SCHEMA_VERSION}. "
            "Install that release or a later one, or give another data folder"
        )
    if owner != cell_id:
        raise DataFolderError(
            f"{path} belongs to cell {owner}, not to cell {cell_id}: its ids come from another range. "
            f"Start it with --cell-id {owner}, or give another data folder"
        )
    return version
