// Walks through a cell with gitbeaker: creates, reads, changes and removes each kind of object. Prints a JSON line for
// each call: its name, what was sent and what came back. Usage: node walk.mjs URL TOKEN
import { Gitlab } from "@gitbeaker/rest";

const [host, token] = process.argv.slice(2);
const api = new Gitlab({ host, token });
const DEADLINE_MS = 120_000;

function record(call, sent, got) {
  console.log(JSON.stringify({ call, sent: sent ?? null, got: got ?? null }));
}

/** Convert the names of options, which gitbeaker takes in camel case, to the names on the wire. */
function wireNames(options) {
  const snake = (name) => name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
  return Object.fromEntries(Object.entries(options).map(([name, value]) => [snake(name), value]));
}

async function expectGone(call, request) {
  try {
    await request;
  } catch (error) {
    if (error.cause?.response?.status === 404) return record(call);
    throw error;
  }
  throw new Error(`${call}: expected 404`);
}

async function walkGroup() {
  const options = { description: "made by gitbeaker", visibility: "private" };
  const group = await api.Groups.create("Beaker", "beaker", options);
  record("group create", { name: "Beaker", path: "beaker", ...options }, group);
  const changed = await api.Groups.edit(group.id, { description: "changed" });
  record("group update", { description: "changed" }, changed);
  return group.id;
}

async function walkProject(namespaceId) {
  const options = {
    name: "Walk",
    path: "walk",
    description: "made by gitbeaker",
    visibility: "private",
    buildTimeout: 1800,
    ciConfigPath: "ci/main.yml",
    topics: ["walk"],
    buildGitStrategy: "clone",
    autoCancelPendingPipelines: "disabled",
    sharedRunnersEnabled: true,
    lfsEnabled: true,
  };
  const project = await api.Projects.create({ ...options, namespaceId, initializeWithReadme: true });
  record("project create", wireNames(options), project);
  const change = { description: "changed", buildTimeout: 3600, ciConfigPath: ".gitlab-ci.yml", ciDefaultGitDepth: 5 };
  record("project update", wireNames(change), await api.Projects.edit(project.id, change));
  record("project get", wireNames(change), await api.Projects.show("beaker/walk"));
  const [found] = await api.Search.all("projects", "walk");
  record("search projects", { path_with_namespace: "beaker/walk" }, found);
  record("readme", { file_name: "README.md" }, await api.RepositoryFiles.show(project.id, "README.md", "main"));
  return project.id;
}

const PIPELINE = `
build:
  script: [echo built]
  artifacts: {paths: [out]}
deploy:
  stage: deploy
  script: [echo deployed]
  environment: {name: production, url: https://example.com}
  resource_group: production
`;

async function walkFiles(project) {
  const path = ".gitlab-ci.yml";
  const file = await api.RepositoryFiles.create(project, path, "main", PIPELINE, "add a pipeline");
  record("file create", { file_path: path, branch: "main" }, file);
  record("lint", { valid: true }, await api.Lint.lint(project, PIPELINE));
  record("branch create", { name: "side" }, await api.Branches.create(project, "side", "main"));
  record("tag create", { name: "v1", message: "first" }, await api.Tags.create(project, "v1", "main", { message: "first" }));
}

async function walkVariables(project, group) {
  const options = { variableType: "file", protected: true, masked: true, raw: true, environmentScope: "production" };
  const variable = await api.ProjectVariables.create(project, "DEPLOY_KEY", "a-long-secret-value", {
    ...options,
    description: "for deployments",
  });
  const sent = { key: "DEPLOY_KEY", value: "a-long-secret-value", description: "for deployments", ...wireNames(options) };
  record("variable create", sent, variable);
  const filter = { environment_scope: "production" };
  const changed = await api.ProjectVariables.edit(project, "DEPLOY_KEY", "another-long-value", { filter });
  record("variable update", { value: "another-long-value" }, changed);
  await api.ProjectVariables.remove(project, "DEPLOY_KEY", { filter });
  await expectGone("variable gone", api.ProjectVariables.show(project, "DEPLOY_KEY"));
  record("group variable create", { key: "SHARED", value: "x" }, await api.GroupVariables.create(group, "SHARED", "x"));
}

async function walkSchedule(project) {
  const options = { cronTimezone: "Europe/Berlin", active: false };
  const schedule = await api.PipelineSchedules.create(project, "nightly", "refs/heads/main", "0 3 * * *", options);
  record("schedule create", { description: "nightly", cron: "0 3 * * *", ...wireNames(options) }, schedule);
  const set = await api.PipelineScheduleVariables.create(project, schedule.id, "MODE", "night");
  record("schedule variable create", { key: "MODE", value: "night" }, set);
  const changed = await api.PipelineSchedules.edit(project, schedule.id, { description: "weekly" });
  record("schedule update", { description: "weekly" }, changed);
  await api.PipelineSchedules.remove(project, schedule.id);
  await expectGone("schedule gone", api.PipelineSchedules.show(project, schedule.id));
}

async function walkTrigger(project) {
  const trigger = await api.PipelineTriggerTokens.create(project, "by another system");
  record("trigger create", { description: "by another system" }, trigger);
  const variables = { FROM: "trigger" };
  const started = await api.PipelineTriggerTokens.trigger(project, "main", trigger.token, { variables });
  record("trigger run", { source: "trigger", ref: "main" }, started);
  const [variable] = await api.Pipelines.allVariables(project, started.id);
  record("pipeline variables", { key: "FROM", value: "trigger" }, variable);
  await api.Pipelines.cancel(project, started.id);
  await api.PipelineTriggerTokens.remove(project, trigger.id);
  await expectGone("trigger gone", api.PipelineTriggerTokens.show(project, trigger.id));
}

async function walkRunner(projectId) {
  const options = {
    description: "made by gitbeaker",
    paused: true,
    locked: true,
    runUntagged: false,
    tagList: ["arm", "linux"],
    accessLevel: "ref_protected",
    maximumTimeout: 7200,
    maintenanceNote: "in the cellar",
  };
  const created = await api.Users.createCIRunner("project_type", { ...options, projectId });
  record("runner create", wireNames(options), await api.Runners.show(created.id));
  const change = { description: "changed", paused: false, tagList: ["x86"] };
  record("runner update", wireNames(change), await api.Runners.edit(created.id, change));
  await api.Runners.remove({ runnerId: created.id });
  await expectGone("runner gone", api.Runners.show(created.id));
}

async function walkJobs(project) {
  let pipeline = await api.Pipelines.create(project, "main", { variables: [{ key: "WHO", value: "beaker" }] });
  record("pipeline create", { ref: "main", source: "api" }, pipeline);
  const end = Date.now() + DEADLINE_MS;
  while (pipeline.status !== "success") {
    if (Date.now() > end) throw new Error(`the pipeline is still ${pipeline.status}`);
    await new Promise((resolve) => setTimeout(resolve, 200));
    pipeline = await api.Pipelines.show(project, pipeline.id);
  }
  record("pipeline get", { status: "success" }, pipeline);
  const jobs = await api.Jobs.all(project, { pipelineId: pipeline.id, scope: "success" });
  const build = jobs.find((job) => job.name === "build");
  record("job", { name: "build", status: "success", stage: "test" }, build);
  record("trace", null, await api.Jobs.showLog(project, build.id));
  const archive = await api.JobArtifacts.downloadArchive(project, { jobId: build.id });
  const start = Buffer.from(await archive.arrayBuffer()).subarray(0, 2).toString();
  record("artifacts", { start: "PK" }, { start });
  const single = await api.JobArtifacts.downloadArchive(project, { jobId: build.id, artifactPath: "out" });
  record("artifact file", { content: "made by a job\n" }, { content: await single.text() });
  const retried = await api.Jobs.retry(project, build.id);
  record("job retry", { name: "build" }, retried);
  await api.Jobs.cancel(project, retried.id);
  const commit = await api.Commits.show(project, "main");
  record("commit last pipeline", { id: pipeline.id }, commit.last_pipeline);
  const [group] = await api.ResourceGroups.all(project);
  record("resource groups", { key: "production" }, group);
  const mode = { processMode: "newest_first" };
  record("resource group update", wireNames(mode), await api.ResourceGroups.edit(project, "production", mode));
}

async function walkEnvironment(project) {
  const [ofJob] = await api.Environments.all(project, { name: "production" });
  const expected = { name: "production", state: "available", external_url: "https://example.com" };
  record("environment of a job", expected, ofJob);
  const [deployment] = await api.Deployments.all(project, { environment: "production" });
  record("deployment of a job", { status: "success", ref: "main" }, deployment);
  const options = { externalUrl: "https://review.example.com", tier: "testing" };
  const environment = await api.Environments.create(project, "review/beaker", options);
  record("environment create", { name: "review/beaker", ...wireNames(options) }, environment);
  const change = { externalUrl: "https://other.example.com", tier: "staging" };
  record("environment update", wireNames(change), await api.Environments.edit(project, environment.id, change));
  record("environment stop", { state: "stopped" }, await api.Environments.stop(project, environment.id));
  await api.Environments.remove(project, environment.id);
  await expectGone("environment gone", api.Environments.show(project, environment.id));
}

async function walkProtected(project) {
  const options = { pushAccessLevel: 40, mergeAccessLevel: 30, allowForcePush: true };
  const branch = await api.ProtectedBranches.protect(project, "release/*", options);
  const sent = { name: "release/*", push: 40, merge: 30, force: true };
  record("protected branch create", sent, {
    name: branch.name,
    push: branch.push_access_levels[0].access_level,
    merge: branch.merge_access_levels[0].access_level,
    force: branch.allow_force_push,
  });
  const changed = await api.ProtectedBranches.edit(project, "release/*", { allowForcePush: false });
  record("protected branch update", { allow_force_push: false }, changed);
  await api.ProtectedBranches.unprotect(project, "release/*");
  await expectGone("protected branch gone", api.ProtectedBranches.show(project, "release/*"));
  const tag = await api.ProtectedTags.protect(project, "v*", { createAccessLevel: "40" });
  const level = tag.create_access_levels[0].access_level;
  record("protected tag create", { name: "v*", level: 40 }, { name: tag.name, level });
  await api.ProtectedTags.unprotect(project, "v*");
  await expectGone("protected tag gone", api.ProtectedTags.show(project, "v*"));
}

async function walkTokens(project, group) {
  const expires = new Date(Date.now() + 30 * 86_400_000).toISOString().slice(0, 10);
  const robot = await api.ProjectAccessTokens.create(project, "robot", ["api"], expires, { accessLevel: 30 });
  const sent = { name: "robot", scopes: ["api"], expires_at: expires, access_level: 30 };
  record("project token create", sent, robot);
  const own = await new Gitlab({ host, token: robot.token }).Projects.show(project);
  record("project token use", { id: project }, own);
  await api.ProjectAccessTokens.revoke(project, robot.id);
  const ofGroup = await api.GroupAccessTokens.create(group, "group robot", ["read_api"], expires, { accessLevel: 20 });
  record("group token create", { name: "group robot", scopes: ["read_api"], access_level: 20 }, ofGroup);
  await api.GroupAccessTokens.revoke(group, ofGroup.id);
  const scopes = ["read_repository"];
  const deploy = await api.DeployTokens.create("mirror", scopes, { projectId: project, username: "mirror-user" });
  record("deploy token create", { name: "mirror", username: "mirror-user", scopes }, deploy);
  await api.DeployTokens.remove(deploy.id, { projectId: project });
  await expectGone("deploy token gone", api.DeployTokens.show(deploy.id, { projectId: project }));
}

async function walkHooks(project, group) {
  const url = "https://hooks.example.com/ci";
  const options = { pipelineEvents: true, jobEvents: true, pushEvents: true, enableSslVerification: true };
  const hook = await api.ProjectHooks.add(project, url, options);
  record("hook create", { url, ...wireNames(options) }, hook);
  const changed = await api.ProjectHooks.edit(project, hook.id, `${url}/2`, { jobEvents: false });
  record("hook update", { url: `${url}/2`, job_events: false }, changed);
  await api.ProjectHooks.remove(project, hook.id);
  await expectGone("hook gone", api.ProjectHooks.show(project, hook.id));
  const ofGroup = await api.GroupHooks.add(group, url, { pipelineEvents: true });
  record("group hook create", { url, pipeline_events: true }, ofGroup);
  await api.GroupHooks.remove(group, ofGroup.id);
}

async function walkStatuses(project) {
  const { id } = await api.Commits.show(project, "main");
  const options = { name: "external", targetUrl: "https://scan.example.com/1", description: "a scan", ref: "main" };
  const status = await api.Commits.editStatus(project, id, "success", options);
  record("commit status create", { status: "success", ...wireNames(options) }, status);
  const [listed] = await api.Commits.allStatuses(project, id, { name: "external" });
  record("commit statuses", { name: "external" }, listed);
  const requests = await api.MergeRequests.all({ projectId: project });
  record("merge requests", { count: 0 }, { count: requests.length });
}

const user = await api.Users.showCurrentUser();
record("user", { username: "root" }, user);
const group = await walkGroup();
const project = await walkProject(group);
await walkFiles(project);
await walkVariables(project, group);
await walkSchedule(project);
await walkTrigger(project);
await walkRunner(project);
await walkJobs(project);
await walkEnvironment(project);
await walkProtected(project);
await walkTokens(project, group);
await walkHooks(project, group);
await walkStatuses(project);
await api.Projects.remove(project);
await api.Groups.remove(group);
await expectGone("group gone", api.Groups.show(group));
