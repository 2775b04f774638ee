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
