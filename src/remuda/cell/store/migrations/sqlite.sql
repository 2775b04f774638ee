CREATE TABLE alembic_version (
    version_num VARCHAR(32) NOT NULL,
    CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('0012');
CREATE TABLE artifacts (
    job_id INTEGER NOT NULL,
    type TEXT NOT NULL,
    body BLOB NOT NULL, look_at AS (json_extract(CAST(body AS TEXT), '$.look_at')) VIRTUAL,
    PRIMARY KEY (job_id, type),
    FOREIGN KEY(job_id) REFERENCES jobs (id)
)
 WITHOUT ROWID;
CREATE TABLE audit_events (
    id INTEGER NOT NULL,
    created_at REAL NOT NULL,
    action TEXT NOT NULL,
    author_id INTEGER NOT NULL,
    entity_type TEXT NOT NULL,
    entity_id INTEGER NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (id)
);
CREATE TABLE cell (
    id INTEGER NOT NULL,
    PRIMARY KEY (id)
);
CREATE TABLE deploy_tokens (
    id INTEGER NOT NULL,
    kind TEXT NOT NULL,
    owner_id INTEGER NOT NULL,
    token_hash TEXT NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (id),
    UNIQUE (token_hash)
);
CREATE TABLE deployments (
    id INTEGER NOT NULL,
    project_id INTEGER NOT NULL,
    iid INTEGER NOT NULL,
    environment_id INTEGER NOT NULL,
    job_id INTEGER,
    status TEXT,
    updated_at REAL,
    finished_at REAL,
    body BLOB NOT NULL,
    PRIMARY KEY (id),
    UNIQUE (project_id, iid)
);
CREATE TABLE environments (
    id INTEGER NOT NULL,
    project_id INTEGER NOT NULL,
    name TEXT NOT NULL,
    state TEXT NOT NULL,
    search_text TEXT NOT NULL,
    auto_stop_at REAL,
    body BLOB NOT NULL,
    PRIMARY KEY (project_id, name),
    UNIQUE (id)
)
 WITHOUT ROWID;
CREATE TABLE hook_deliveries (
    id INTEGER NOT NULL,
    hook_id INTEGER NOT NULL,
    uuid TEXT NOT NULL,
    due_at REAL,
    created_at REAL NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (id),
    UNIQUE (uuid)
);
CREATE TABLE hooks (
    id INTEGER NOT NULL,
    kind TEXT NOT NULL,
    owner_id INTEGER NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (id)
);
CREATE TABLE identities (
    id INTEGER NOT NULL,
    name TEXT NOT NULL,
    user_id INTEGER NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (id),
    UNIQUE (name)
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
    body BLOB NOT NULL, resource_group TEXT, is_trigger INTEGER DEFAULT 0 NOT NULL, ref AS (json_extract(CAST(body AS TEXT), '$.ref')) VIRTUAL, name AS (json_extract(CAST(body AS TEXT), '$.name')) VIRTUAL,
    PRIMARY KEY (id),
    FOREIGN KEY(pipeline_id) REFERENCES pipelines (id),
    FOREIGN KEY(spec_id) REFERENCES specs (id)
);
CREATE TABLE lfs_locks (
    id INTEGER NOT NULL,
    project_id INTEGER NOT NULL,
    path_key TEXT NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (id),
    UNIQUE (path_key),
    FOREIGN KEY(project_id) REFERENCES projects (id)
);
CREATE TABLE lfs_objects (
    project_id INTEGER NOT NULL,
    oid TEXT NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (project_id, oid),
    FOREIGN KEY(project_id) REFERENCES projects (id)
)
 WITHOUT ROWID;
CREATE TABLE lfs_usage (
    project_id INTEGER NOT NULL,
    bytes BIGINT NOT NULL,
    PRIMARY KEY (project_id),
    FOREIGN KEY(project_id) REFERENCES projects (id)
);
CREATE TABLE managers (
    runner_id INTEGER NOT NULL,
    system_id TEXT NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (runner_id, system_id),
    FOREIGN KEY(runner_id) REFERENCES runners (id) ON DELETE CASCADE
)
 WITHOUT ROWID;
CREATE TABLE members (
    kind TEXT NOT NULL,
    owner_id INTEGER NOT NULL,
    user_id INTEGER NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (kind, owner_id, user_id)
)
 WITHOUT ROWID;
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
INSERT INTO "namespaces" VALUES(1,'root',NULL,1,'root
administrator',X'7B2276657273696F6E223A312C226964223A312C2270617468223A22726F6F74222C226E616D65223A2241646D696E6973747261746F72222C22637265617465645F6174223A302C226F776E65725F6964223A317D');
CREATE TABLE organizations (
    id INTEGER NOT NULL,
    path_key TEXT NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (id),
    UNIQUE (path_key)
);
INSERT INTO "organizations" VALUES(1,'default',X'7B2276657273696F6E223A312C226964223A312C2270617468223A2264656661756C74222C226E616D65223A2244656661756C74222C22637265617465645F6174223A307D');
CREATE TABLE pipelines (
    id INTEGER NOT NULL,
    project_id INTEGER NOT NULL,
    iid INTEGER NOT NULL,
    ref TEXT NOT NULL,
    sha TEXT NOT NULL,
    status TEXT NOT NULL,
    body BLOB NOT NULL, upstream_job_id INTEGER, is_child INTEGER DEFAULT 0 NOT NULL, source AS (json_extract(CAST(body AS TEXT), '$.source')) VIRTUAL, name AS (json_extract(CAST(body AS TEXT), '$.name')) VIRTUAL, tag AS (json_extract(CAST(body AS TEXT), '$.tag')) VIRTUAL, yaml_errors AS (json_extract(CAST(body AS TEXT), '$.yaml_errors')) VIRTUAL, schedule_id AS (json_extract(CAST(body AS TEXT), '$.schedule_id')) VIRTUAL, user_id AS (json_extract(CAST(body AS TEXT), '$.user_id')) VIRTUAL, created_at AS (json_extract(CAST(body AS TEXT), '$.created_at')) VIRTUAL, updated_at AS (json_extract(CAST(body AS TEXT), '$.updated_at')) VIRTUAL,
    PRIMARY KEY (id),
    UNIQUE (project_id, iid),
    FOREIGN KEY(project_id) REFERENCES projects (id)
);
CREATE TABLE probe (
    id INTEGER NOT NULL,
    writes INTEGER NOT NULL,
    PRIMARY KEY (id),
    CHECK (id = 1)
);
CREATE TABLE projects (
    id INTEGER NOT NULL,
    path_key TEXT NOT NULL,
    search_text TEXT NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (id),
    UNIQUE (path_key)
);
CREATE TABLE releases (
    project_id INTEGER NOT NULL,
    tag TEXT NOT NULL,
    released_at REAL NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (project_id, tag),
    FOREIGN KEY(project_id) REFERENCES projects (id)
)
 WITHOUT ROWID;
CREATE TABLE resource_groups (
    id INTEGER NOT NULL,
    project_id INTEGER NOT NULL,
    "key" TEXT NOT NULL,
    process_mode TEXT NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (project_id, "key"),
    UNIQUE (id)
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
CREATE TABLE runners (
    id INTEGER NOT NULL,
    token_hash TEXT NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (id),
    UNIQUE (token_hash)
);
CREATE TABLE schedules (
    id INTEGER NOT NULL,
    project_id INTEGER NOT NULL,
    next_run_at REAL,
    body BLOB NOT NULL,
    PRIMARY KEY (id),
    FOREIGN KEY(project_id) REFERENCES projects (id)
);
CREATE TABLE seen_refs (
    project_id INTEGER NOT NULL,
    ref TEXT NOT NULL,
    sha TEXT NOT NULL,
    PRIMARY KEY (project_id, ref),
    FOREIGN KEY(project_id) REFERENCES projects (id)
)
 WITHOUT ROWID;
CREATE TABLE sequences (
    name TEXT NOT NULL,
    last INTEGER NOT NULL,
    PRIMARY KEY (name)
)
 WITHOUT ROWID;
CREATE TABLE settings (
    name TEXT NOT NULL,
    value TEXT NOT NULL,
    PRIMARY KEY (name)
)
 WITHOUT ROWID;
CREATE TABLE sign_in_links (
    id INTEGER NOT NULL,
    code_hash TEXT NOT NULL,
    user_id INTEGER NOT NULL,
    expires_at REAL NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (id),
    UNIQUE (code_hash)
);
CREATE TABLE signing_keys (
    number INTEGER NOT NULL,
    kid TEXT NOT NULL,
    pem BLOB NOT NULL,
    PRIMARY KEY (number),
    UNIQUE (kid)
);
CREATE TABLE specs (
    id INTEGER NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (id)
);
CREATE TABLE triggers (
    id INTEGER NOT NULL,
    project_id INTEGER NOT NULL,
    token_hash TEXT NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (id),
    UNIQUE (token_hash),
    FOREIGN KEY(project_id) REFERENCES projects (id)
);
CREATE TABLE user_tokens (
    number INTEGER NOT NULL,
    token_hash TEXT NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (number),
    UNIQUE (token_hash)
);
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
INSERT INTO "users" VALUES(1,'root',1,'root
administrator','admin@example.com',X'7B2276657273696F6E223A312C226964223A312C22757365726E616D65223A22726F6F74222C226E616D65223A2241646D696E6973747261746F72222C22656D61696C223A2261646D696E406578616D706C652E636F6D222C22637265617465645F6174223A302C226E616D6573706163655F6964223A312C2269735F61646D696E223A747275657D');
CREATE TABLE variables (
    project_id INTEGER NOT NULL,
    group_id INTEGER NOT NULL,
    "key" TEXT NOT NULL,
    environment_scope TEXT NOT NULL,
    body BLOB NOT NULL,
    CONSTRAINT variables_named PRIMARY KEY (project_id, group_id, "key", environment_scope)
)
 WITHOUT ROWID;
CREATE TABLE web_sessions (
    id INTEGER NOT NULL,
    token_hash TEXT NOT NULL,
    user_id INTEGER NOT NULL,
    expires_at REAL NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (id),
    UNIQUE (token_hash)
);
CREATE INDEX jobs_of_pipeline ON jobs (pipeline_id, id);
CREATE INDEX jobs_by_state ON jobs (state, id);
CREATE INDEX jobs_by_request ON jobs (runner_id, request_id) WHERE state = 'leased';
CREATE UNIQUE INDEX pipelines_by_upstream ON pipelines (upstream_job_id);
CREATE INDEX pipelines_listed ON pipelines (project_id, id, is_child);
CREATE INDEX pipelines_of_schedule ON pipelines (schedule_id, id) WHERE schedule_id IS NOT NULL;
CREATE INDEX jobs_of_project ON jobs (project_id, id, is_trigger);
CREATE INDEX jobs_that_succeeded ON jobs (project_id, ref, name, id) WHERE state = 'success';
CREATE INDEX jobs_by_resource ON jobs (project_id, resource_group, state) WHERE resource_group IS NOT NULL;
CREATE INDEX schedules_of_project ON schedules (project_id, id);
CREATE INDEX schedules_by_time ON schedules (next_run_at) WHERE next_run_at IS NOT NULL;
CREATE INDEX triggers_of_project ON triggers (project_id, id);
CREATE INDEX artifacts_by_time ON artifacts (look_at, job_id, type) WHERE look_at IS NOT NULL;
CREATE INDEX namespaces_inside ON namespaces (parent_id);
CREATE INDEX members_by_user ON members (user_id);
CREATE INDEX audit_events_by_time ON audit_events (created_at);
CREATE INDEX audit_events_by_author ON audit_events (author_id, id);
CREATE INDEX audit_events_by_entity ON audit_events (entity_type, entity_id, id);
CREATE INDEX pipelines_of_ref ON pipelines (project_id, ref, status, id);
CREATE INDEX pipelines_listed_by_ref ON pipelines (project_id, ref, id);
CREATE INDEX pipelines_open ON pipelines (status, updated_at) WHERE status NOT IN ('success', 'failed', 'canceled', 'skipped');
CREATE INDEX jobs_listed_by_state ON jobs (project_id, state, id);
CREATE INDEX jobs_of_runner ON jobs (runner_id, state, id) WHERE runner_id IS NOT NULL;
CREATE INDEX lfs_locks_of_project ON lfs_locks (project_id, id);
CREATE INDEX environments_of_project ON environments (project_id, id);
CREATE INDEX environments_by_time ON environments (auto_stop_at) WHERE auto_stop_at IS NOT NULL;
CREATE INDEX deployments_of_project ON deployments (project_id, id);
CREATE INDEX deployments_of_environment ON deployments (environment_id, id);
CREATE INDEX deployments_of_job ON deployments (job_id);
CREATE INDEX pipelines_of_commit ON pipelines (project_id, sha, id);
CREATE INDEX deploy_tokens_of_owner ON deploy_tokens (kind, owner_id, id);
CREATE INDEX hooks_of_owner ON hooks (kind, owner_id, id);
CREATE INDEX hook_deliveries_of_hook ON hook_deliveries (hook_id, id);
CREATE INDEX hook_deliveries_due ON hook_deliveries (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX hook_deliveries_by_time ON hook_deliveries (created_at);
CREATE INDEX web_sessions_of_user ON web_sessions (user_id, id);
CREATE INDEX web_sessions_by_expiry ON web_sessions (expires_at);
CREATE INDEX sign_in_links_of_user ON sign_in_links (user_id, id);
CREATE INDEX sign_in_links_by_expiry ON sign_in_links (expires_at);
CREATE INDEX identities_of_user ON identities (user_id, id);
