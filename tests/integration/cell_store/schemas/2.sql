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
