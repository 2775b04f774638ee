CREATE TABLE alembic_version (
    version_num VARCHAR(32) NOT NULL,
    CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
-- Running upgrade  -> 0001

CREATE TABLE schema_version (
    version INTEGER NOT NULL,
    cell_id INTEGER NOT NULL
);
CREATE TABLE sequences (
    name TEXT NOT NULL,
    last INTEGER NOT NULL,
    PRIMARY KEY (name)
)
 WITHOUT ROWID;
CREATE TABLE probe (
    id INTEGER NOT NULL,
    writes INTEGER NOT NULL,
    PRIMARY KEY (id),
    CHECK (id = 1)
);
CREATE TABLE settings (
    name TEXT NOT NULL,
    value TEXT NOT NULL,
    PRIMARY KEY (name)
)
 WITHOUT ROWID;
CREATE TABLE signing_keys (
    number INTEGER NOT NULL,
    kid TEXT NOT NULL,
    pem BLOB NOT NULL,
    PRIMARY KEY (number),
    UNIQUE (kid)
);
CREATE TABLE user_tokens (
    number INTEGER NOT NULL,
    token_hash TEXT NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (number),
    UNIQUE (token_hash)
);
CREATE TABLE projects (
    id INTEGER NOT NULL,
    path_key TEXT NOT NULL,
    search_text TEXT NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (id),
    UNIQUE (path_key)
);
CREATE TABLE variables (
    project_id INTEGER NOT NULL,
    "key" TEXT NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (project_id, "key"),
    FOREIGN KEY(project_id) REFERENCES projects (id)
)
 WITHOUT ROWID;
CREATE TABLE seen_refs (
    project_id INTEGER NOT NULL,
    ref TEXT NOT NULL,
    sha TEXT NOT NULL,
    PRIMARY KEY (project_id, ref),
    FOREIGN KEY(project_id) REFERENCES projects (id)
)
 WITHOUT ROWID;
CREATE TABLE pipelines (
    id INTEGER NOT NULL,
    project_id INTEGER NOT NULL,
    iid INTEGER NOT NULL,
    ref TEXT NOT NULL,
    sha TEXT NOT NULL,
    status TEXT NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (id),
    UNIQUE (project_id, iid),
    FOREIGN KEY(project_id) REFERENCES projects (id)
);
CREATE TABLE specs (
    id INTEGER NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (id)
);
CREATE TABLE jobs (
    id INTEGER NOT NULL,
    project_id INTEGER NOT NULL,
    pipeline_id INTEGER NOT NULL,
    spec_id INTEGER NOT NULL,
    state TEXT NOT NULL,
    retried INTEGER NOT NULL,
    runner_id INTEGER,
    request_id TEXT,
    body BLOB NOT NULL,
    PRIMARY KEY (id),
    FOREIGN KEY(pipeline_id) REFERENCES pipelines (id),
    FOREIGN KEY(spec_id) REFERENCES specs (id)
);
CREATE INDEX jobs_of_pipeline ON jobs (pipeline_id, id);
CREATE INDEX jobs_of_project ON jobs (project_id, id);
CREATE INDEX jobs_by_state ON jobs (state, id);
CREATE INDEX jobs_by_request ON jobs (runner_id, request_id) WHERE state = 'leased';
CREATE TABLE runners (
    id INTEGER NOT NULL,
    token_hash TEXT NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (id),
    UNIQUE (token_hash)
);
CREATE TABLE managers (
    runner_id INTEGER NOT NULL,
    system_id TEXT NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (runner_id, system_id),
    FOREIGN KEY(runner_id) REFERENCES runners (id) ON DELETE CASCADE
)
 WITHOUT ROWID;
CREATE TABLE results (
    job_id INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (job_id, seq),
    FOREIGN KEY(job_id) REFERENCES jobs (id)
)
 WITHOUT ROWID;
CREATE TABLE artifacts (
    job_id INTEGER NOT NULL,
    type TEXT NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (job_id, type),
    FOREIGN KEY(job_id) REFERENCES jobs (id)
)
 WITHOUT ROWID;
INSERT INTO alembic_version (version_num) VALUES ('0001') RETURNING version_num;
-- Running upgrade 0001 -> 0002

ALTER TABLE pipelines ADD COLUMN upstream_job_id INTEGER;
ALTER TABLE pipelines ADD COLUMN is_child INTEGER DEFAULT 0 NOT NULL;
CREATE UNIQUE INDEX pipelines_by_upstream ON pipelines (upstream_job_id);
CREATE INDEX pipelines_of_ref ON pipelines (project_id, ref, status);
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
ALTER TABLE jobs ADD COLUMN is_trigger INTEGER DEFAULT 0 NOT NULL;
DROP INDEX jobs_of_project;
CREATE INDEX jobs_of_project ON jobs (project_id, id, is_trigger);
ALTER TABLE jobs ADD COLUMN ref AS (json_extract(CAST(body AS TEXT), '$.ref')) VIRTUAL;
ALTER TABLE jobs ADD COLUMN name AS (json_extract(CAST(body AS TEXT), '$.name')) VIRTUAL;
CREATE INDEX jobs_that_succeeded ON jobs (project_id, ref, name, id) WHERE state = 'success';
CREATE INDEX jobs_by_resource ON jobs (project_id, resource_group, state) WHERE resource_group IS NOT NULL;
CREATE TABLE schedules (
    id INTEGER NOT NULL,
    project_id INTEGER NOT NULL,
    next_run_at REAL,
    body BLOB NOT NULL,
    PRIMARY KEY (id),
    FOREIGN KEY(project_id) REFERENCES projects (id)
);
CREATE INDEX schedules_of_project ON schedules (project_id, id);
CREATE INDEX schedules_by_time ON schedules (next_run_at) WHERE next_run_at IS NOT NULL;
CREATE TABLE triggers (
    id INTEGER NOT NULL,
    project_id INTEGER NOT NULL,
    token_hash TEXT NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (id),
    UNIQUE (token_hash),
    FOREIGN KEY(project_id) REFERENCES projects (id)
);
CREATE INDEX triggers_of_project ON triggers (project_id, id);
CREATE TABLE releases (
    project_id INTEGER NOT NULL,
    tag TEXT NOT NULL,
    released_at REAL NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (project_id, tag),
    FOREIGN KEY(project_id) REFERENCES projects (id)
)
 WITHOUT ROWID;
UPDATE alembic_version SET version_num='0002' WHERE alembic_version.version_num = '0001';
-- Running upgrade 0002 -> 0003

CREATE TABLE cell (
    id INTEGER NOT NULL,
    PRIMARY KEY (id)
);
INSERT INTO cell (id) SELECT cell_id FROM schema_version;
DROP TABLE schema_version;
UPDATE alembic_version SET version_num='0003' WHERE alembic_version.version_num = '0002';
-- Running upgrade 0003 -> 0004

ALTER TABLE artifacts ADD COLUMN look_at AS (json_extract(CAST(body AS TEXT), '$.look_at')) VIRTUAL;
UPDATE artifacts SET body = CAST(json_set(CAST(body AS TEXT), '$.look_at', json_extract(CAST(body AS TEXT), '$.created_at')) AS BLOB);
CREATE INDEX artifacts_by_time ON artifacts (look_at, job_id, type) WHERE look_at IS NOT NULL;
UPDATE alembic_version SET version_num='0004' WHERE alembic_version.version_num = '0003';
-- Running upgrade 0004 -> 0005

CREATE TABLE organizations (
    id INTEGER NOT NULL,
    path_key TEXT NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (id),
    UNIQUE (path_key)
);
CREATE TABLE namespaces (
    id INTEGER NOT NULL,
    path_key TEXT NOT NULL,
    parent_id INTEGER,
    organization_id INTEGER NOT NULL,
    search_text TEXT NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (id),
    UNIQUE (path_key)
);
CREATE INDEX namespaces_inside ON namespaces (parent_id);
CREATE TABLE users (
    id INTEGER NOT NULL,
    name_key TEXT NOT NULL,
    organization_id INTEGER NOT NULL,
    search_text TEXT NOT NULL,
    email_key TEXT NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (id),
    UNIQUE (name_key)
);
CREATE TABLE members (
    kind TEXT NOT NULL,
    owner_id INTEGER NOT NULL,
    user_id INTEGER NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (kind, owner_id, user_id)
)
 WITHOUT ROWID;
CREATE INDEX members_by_user ON members (user_id);
INSERT INTO organizations VALUES (1, 'default', CAST('{"version":1,"id":1,"path":"default","name":"Default","created_at":0}' AS BLOB));
INSERT INTO namespaces VALUES (1, 'root', NULL, 1, 'root' || char(10) || 'administrator', CAST('{"version":1,"id":1,"path":"root","name":"Administrator","created_at":0,"owner_id":1}' AS BLOB));
INSERT INTO users VALUES (1, 'root', 1, 'root' || char(10) || 'administrator', 'admin@example.com', CAST('{"version":1,"id":1,"username":"root","name":"Administrator","email":"admin@example.com","created_at":0,"namespace_id":1,"is_admin":true}' AS BLOB));
ALTER TABLE variables RENAME TO project_variables;
CREATE TABLE variables (
    project_id INTEGER NOT NULL,
    group_id INTEGER NOT NULL,
    "key" TEXT NOT NULL,
    environment_scope TEXT NOT NULL,
    body BLOB NOT NULL,
    CONSTRAINT variables_named PRIMARY KEY (project_id, group_id, "key", environment_scope)
)
 WITHOUT ROWID;
INSERT INTO variables SELECT project_id, 0, key, '*', body FROM project_variables;
DROP TABLE project_variables;
UPDATE user_tokens SET body = CAST(json_set(CAST(body AS TEXT), '$.id', number) AS BLOB);
UPDATE alembic_version SET version_num='0005' WHERE alembic_version.version_num = '0004';
