// Walks through a cell with GitLab's own Go client, as glab and the Terraform provider do: creates, reads, changes and
// removes each kind of object. Prints a JSON line for each call: its name, what was sent and what came back. The test
// compares them, so that no field is dropped silently. Usage: client-go URL TOKEN
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	gitlab "gitlab.com/gitlab-org/api/client-go"
)

type walk struct {
	client *gitlab.Client
	out    *json.Encoder
}

// record prints a call. A nil `sent` means that there is nothing to compare.
func (w *walk) record(call string, sent, got any, err error) {
	must(call, err)
	must(call, w.out.Encode(map[string]any{"call": call, "sent": sent, "got": got}))
}

func must(call string, err error) {
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", call, err)
		os.Exit(1)
	}
}

// gone checks that a removed object is answered with 404.
func (w *walk) gone(call string, err error) {
	var answer *gitlab.ErrorResponse
	isGone := errors.Is(err, gitlab.ErrNotFound) || (errors.As(err, &answer) && answer.Response.StatusCode == 404)
	if !isGone {
		must(call, fmt.Errorf("expected 404, got %v", err))
	}
	w.record(call, nil, nil, nil)
}

func main() {
	client, err := gitlab.NewClient(os.Args[2], gitlab.WithBaseURL(os.Args[1]), gitlab.WithoutRetries())
	must("client", err)
	w := &walk{client: client, out: json.NewEncoder(os.Stdout)}
	user, _, err := client.Users.CurrentUser()
	w.record("user", map[string]any{"username": "root"}, user, err)
	group := w.group()
	project := w.project(group)
	w.files(project)
	w.variables(project, group)
	w.schedule(project)
	w.trigger(project)
	w.runner(project)
	w.jobs(project)
	w.environment(project)
	w.protected(project)
	w.tokens(project, group)
	w.hooks(project, group)
	w.statuses(project)
	w.scope(project)
	w.remove(project, group)
}

func (w *walk) group() int64 {
	options := &gitlab.CreateGroupOptions{
		Name:        gitlab.Ptr("Go walk"),
		Path:        gitlab.Ptr("go-walk"),
		Description: gitlab.Ptr("made by client-go"),
		Visibility:  gitlab.Ptr(gitlab.PrivateVisibility),
	}
	group, _, err := w.client.Groups.CreateGroup(options)
	w.record("group create", options, group, err)
	change := &gitlab.UpdateGroupOptions{Description: gitlab.Ptr("changed"), Name: gitlab.Ptr("Go walk 2")}
	group, _, err = w.client.Groups.UpdateGroup(group.ID, change)
	w.record("group update", change, group, err)
	found, _, err := w.client.Groups.GetGroup("go-walk", nil)
	w.record("group get", change, found, err)
	return group.ID
}

func (w *walk) project(group int64) int64 {
	options := &gitlab.CreateProjectOptions{
		Name:                       gitlab.Ptr("Walk"),
		Path:                       gitlab.Ptr("walk"),
		NamespaceID:                gitlab.Ptr(group),
		Description:                gitlab.Ptr("made by client-go"),
		Visibility:                 gitlab.Ptr(gitlab.PrivateVisibility),
		DefaultBranch:              gitlab.Ptr("main"),
		InitializeWithReadme:       gitlab.Ptr(true),
		BuildTimeout:               gitlab.Ptr(int64(1800)),
		CIConfigPath:               gitlab.Ptr("ci/main.yml"),
		Topics:                     gitlab.Ptr([]string{"walk", "go"}),
		BuildGitStrategy:           gitlab.Ptr("clone"),
		AutoCancelPendingPipelines: gitlab.Ptr("disabled"),
		LFSEnabled:                 gitlab.Ptr(true),
		SharedRunnersEnabled:       gitlab.Ptr(true),
		GroupRunnersEnabled:        gitlab.Ptr(true),
	}
	project, _, err := w.client.Projects.CreateProject(options)
	must("project create", err)
	sent := fields(options)
	delete(sent, "initialize_with_readme") // A parameter of the creation, not a property.
	delete(sent, "namespace_id")
	w.record("project create", sent, project, err)
	change := &gitlab.EditProjectOptions{
		Description:                  gitlab.Ptr("changed"),
		BuildTimeout:                 gitlab.Ptr(int64(3600)),
		CIConfigPath:                 gitlab.Ptr(".gitlab-ci.yml"),
		CIDefaultGitDepth:            gitlab.Ptr(int64(7)),
		CISeparatedCaches:            gitlab.Ptr(false),
		KeepLatestArtifact:           gitlab.Ptr(false),
		PublicJobs:                   gitlab.Ptr(true),
		AutoCancelPendingPipelines:   gitlab.Ptr("enabled"),
		BuildGitStrategy:             gitlab.Ptr("fetch"),
		Topics:                       gitlab.Ptr([]string{"other"}),
		RestrictUserDefinedVariables: gitlab.Ptr(false),
	}
	project, _, err = w.client.Projects.EditProject(project.ID, change)
	w.record("project update", change, project, err)
	found, _, err := w.client.Projects.GetProject("go-walk/walk", nil)
	w.record("project get", change, found, err)
	listed, _, err := w.client.Search.Projects("walk", &gitlab.SearchOptions{})
	must("search", err)
	w.record("search projects", map[string]any{"path_with_namespace": "go-walk/walk"}, listed[0], nil)
	readme, _, err := w.client.RepositoryFiles.GetRawFile(project.ID, "README.md", nil)
	w.record("readme", nil, string(readme), err)
	return project.ID
}

const pipelineFile = `
build:
  script: [echo built]
  artifacts: {paths: [out]}
deploy:
  stage: deploy
  script: [echo deployed]
  environment: {name: production, url: https://example.com}
  resource_group: production
`

func (w *walk) files(project int64) {
	options := &gitlab.CreateFileOptions{
		Branch:        gitlab.Ptr("main"),
		Content:       gitlab.Ptr(pipelineFile),
		CommitMessage: gitlab.Ptr("add a pipeline"),
	}
	file, _, err := w.client.RepositoryFiles.CreateFile(project, ".gitlab-ci.yml", options)
	w.record("file create", map[string]any{"file_path": ".gitlab-ci.yml", "branch": "main"}, file, err)
	lint, _, err := w.client.Validate.ProjectLint(project, nil)
	w.record("lint", map[string]any{"valid": true}, lint, err)
	branch, _, err := w.client.Branches.CreateBranch(
		project, &gitlab.CreateBranchOptions{Branch: gitlab.Ptr("side"), Ref: gitlab.Ptr("main")})
	w.record("branch create", map[string]any{"name": "side"}, branch, err)
	tag, _, err := w.client.Tags.CreateTag(
		project, &gitlab.CreateTagOptions{TagName: gitlab.Ptr("v1"), Ref: gitlab.Ptr("main"), Message: gitlab.Ptr("first")})
	w.record("tag create", map[string]any{"name": "v1", "message": "first"}, tag, err)
}

func (w *walk) variables(project, group int64) {
	options := &gitlab.CreateProjectVariableOptions{
		Key:              gitlab.Ptr("DEPLOY_KEY"),
		Value:            gitlab.Ptr("a-long-secret-value"),
		Description:      gitlab.Ptr("for deployments"),
		EnvironmentScope: gitlab.Ptr("production"),
		Masked:           gitlab.Ptr(true),
		Protected:        gitlab.Ptr(true),
		Raw:              gitlab.Ptr(true),
		VariableType:     gitlab.Ptr(gitlab.FileVariableType),
	}
	variable, _, err := w.client.ProjectVariables.CreateVariable(project, options)
	w.record("variable create", options, variable, err)
	change := &gitlab.UpdateProjectVariableOptions{
		Value:     gitlab.Ptr("another-long-value"),
		Protected: gitlab.Ptr(false),
		Filter:    &gitlab.VariableFilter{EnvironmentScope: "production"},
	}
	variable, _, err = w.client.ProjectVariables.UpdateVariable(project, "DEPLOY_KEY", change)
	w.record("variable update", map[string]any{"value": "another-long-value", "protected": false}, variable, err)
	_, err = w.client.ProjectVariables.RemoveVariable(
		project, "DEPLOY_KEY", &gitlab.RemoveProjectVariableOptions{Filter: &gitlab.VariableFilter{EnvironmentScope: "production"}})
	w.record("variable remove", nil, nil, err)
	_, _, err = w.client.ProjectVariables.GetVariable(project, "DEPLOY_KEY", nil)
	w.gone("variable gone", err)
	ofGroup := &gitlab.CreateGroupVariableOptions{
		Key: gitlab.Ptr("SHARED"), Value: gitlab.Ptr("x"), Description: gitlab.Ptr("of the group"), Raw: gitlab.Ptr(false),
	}
	shared, _, err := w.client.GroupVariables.CreateVariable(group, ofGroup)
	w.record("group variable create", ofGroup, shared, err)
	ofCell := &gitlab.CreateInstanceVariableOptions{Key: gitlab.Ptr("EVERYWHERE"), Value: gitlab.Ptr("y")}
	everywhere, _, err := w.client.InstanceVariables.CreateVariable(ofCell)
	w.record("instance variable create", ofCell, everywhere, err)
	_, err = w.client.InstanceVariables.RemoveVariable("EVERYWHERE")
	w.record("instance variable remove", nil, nil, err)
}

func (w *walk) schedule(project int64) {
	options := &gitlab.CreatePipelineScheduleOptions{
		Description:  gitlab.Ptr("nightly"),
		Ref:          gitlab.Ptr("refs/heads/main"),
		Cron:         gitlab.Ptr("0 3 * * *"),
		CronTimezone: gitlab.Ptr("Europe/Berlin"),
		Active:       gitlab.Ptr(false),
	}
	schedule, _, err := w.client.PipelineSchedules.CreatePipelineSchedule(project, options)
	w.record("schedule create", options, schedule, err)
	variable := &gitlab.CreatePipelineScheduleVariableOptions{Key: gitlab.Ptr("MODE"), Value: gitlab.Ptr("night")}
	set, _, err := w.client.PipelineSchedules.CreatePipelineScheduleVariable(project, schedule.ID, variable)
	w.record("schedule variable create", variable, set, err)
	change := &gitlab.EditPipelineScheduleOptions{Description: gitlab.Ptr("weekly"), Cron: gitlab.Ptr("0 4 * * 1")}
	schedule, _, err = w.client.PipelineSchedules.EditPipelineSchedule(project, schedule.ID, change)
	w.record("schedule update", change, schedule, err)
	found, _, err := w.client.PipelineSchedules.GetPipelineSchedule(project, schedule.ID)
	w.record("schedule get", map[string]any{"description": "weekly", "active": false}, found, err)
	_, err = w.client.PipelineSchedules.DeletePipelineSchedule(project, schedule.ID)
	w.record("schedule remove", nil, nil, err)
}

func (w *walk) trigger(project int64) {
	options := &gitlab.AddPipelineTriggerOptions{Description: gitlab.Ptr("by another system")}
	trigger, _, err := w.client.PipelineTriggers.AddPipelineTrigger(project, options)
	w.record("trigger create", options, trigger, err)
	started, _, err := w.client.PipelineTriggers.RunPipelineTrigger(project, &gitlab.RunPipelineTriggerOptions{
		Ref: gitlab.Ptr("main"), Token: gitlab.Ptr(trigger.Token), Variables: map[string]string{"FROM": "trigger"},
	})
	w.record("trigger run", map[string]any{"source": "trigger", "ref": "main"}, started, err)
	variables, _, err := w.client.Pipelines.GetPipelineVariables(project, started.ID)
	must("pipeline variables", err)
	w.record("pipeline variables", map[string]any{"key": "FROM", "value": "trigger"}, variables[0], nil)
	_, _, err = w.client.Pipelines.CancelPipelineBuild(project, started.ID)
	w.record("pipeline cancel", nil, nil, err)
	_, err = w.client.PipelineTriggers.DeletePipelineTrigger(project, trigger.ID)
	w.record("trigger remove", nil, nil, err)
}

func (w *walk) runner(project int64) {
	options := &gitlab.CreateUserRunnerOptions{
		RunnerType:      gitlab.Ptr("project_type"),
		ProjectID:       gitlab.Ptr(project),
		Description:     gitlab.Ptr("made by client-go"),
		Paused:          gitlab.Ptr(true),
		Locked:          gitlab.Ptr(true),
		RunUntagged:     gitlab.Ptr(false),
		TagList:         gitlab.Ptr([]string{"arm", "linux"}),
		AccessLevel:     gitlab.Ptr("ref_protected"),
		MaximumTimeout:  gitlab.Ptr(int64(7200)),
		MaintenanceNote: gitlab.Ptr("in the cellar"),
	}
	created, _, err := w.client.Users.CreateUserRunner(options)
	must("runner create", err)
	found, _, err := w.client.Runners.GetRunnerDetails(created.ID)
	sent := fields(options)
	delete(sent, "project_id")
	w.record("runner create", sent, found, err)
	change := &gitlab.UpdateRunnerDetailsOptions{
		Description: gitlab.Ptr("changed"), Paused: gitlab.Ptr(false), TagList: gitlab.Ptr([]string{"x86"}),
	}
	found, _, err = w.client.Runners.UpdateRunnerDetails(created.ID, change)
	w.record("runner update", change, found, err)
	renewed, _, err := w.client.Runners.ResetRunnerAuthenticationToken(created.ID)
	w.record("runner rotate", nil, renewed, err)
	_, err = w.client.Runners.VerifyRegisteredRunner(&gitlab.VerifyRegisteredRunnerOptions{Token: renewed.Token})
	w.record("runner verify", nil, nil, err)
	_, err = w.client.Runners.DeleteRegisteredRunnerByID(created.ID)
	w.record("runner remove", nil, nil, err)
	_, _, err = w.client.Runners.GetRunnerDetails(created.ID)
	w.gone("runner gone", err)
}

func (w *walk) jobs(project int64) {
	pipeline, _, err := w.client.Pipelines.CreatePipeline(project, &gitlab.CreatePipelineOptions{
		Ref:       gitlab.Ptr("main"),
		Variables: &[]*gitlab.PipelineVariableOptions{{Key: gitlab.Ptr("WHO"), Value: gitlab.Ptr("go")}},
	})
	w.record("pipeline create", map[string]any{"ref": "main", "source": "api"}, pipeline, err)
	deadline := time.Now().Add(2 * time.Minute)
	for pipeline.Status != "success" {
		if time.Now().After(deadline) {
			must("pipeline", fmt.Errorf("still %s", pipeline.Status))
		}
		time.Sleep(200 * time.Millisecond)
		pipeline, _, err = w.client.Pipelines.GetPipeline(project, pipeline.ID)
		must("pipeline get", err)
	}
	w.record("pipeline get", map[string]any{"status": "success"}, pipeline, nil)
	jobs, _, err := w.client.Jobs.ListPipelineJobs(project, pipeline.ID, &gitlab.ListJobsOptions{
		Scope: &[]gitlab.BuildStateValue{gitlab.Success},
	})
	must("jobs list", err)
	var build *gitlab.Job
	for _, job := range jobs {
		if job.Name == "build" {
			build = job
		}
	}
	w.record("job", map[string]any{"name": "build", "status": "success", "stage": "test"}, build, nil)
	trace, _, err := w.client.Jobs.GetTraceFile(project, build.ID)
	must("trace", err)
	log, err := io.ReadAll(trace)
	w.record("trace", nil, string(log), err)
	archive, _, err := w.client.Jobs.GetJobArtifacts(project, build.ID)
	must("artifacts", err)
	content, err := io.ReadAll(archive)
	w.record("artifacts", map[string]any{"is_zip": true}, map[string]any{"is_zip": bytes.HasPrefix(content, []byte("PK"))}, err)
	single, _, err := w.client.Jobs.DownloadSingleArtifactsFile(project, build.ID, "out")
	must("artifact file", err)
	content, err = io.ReadAll(single)
	w.record("artifact file", map[string]any{"content": "made by a job\n"}, map[string]any{"content": string(content)}, err)
	retried, _, err := w.client.Jobs.RetryJob(project, build.ID)
	w.record("job retry", map[string]any{"name": "build"}, retried, err)
	_, _, err = w.client.Jobs.CancelJob(project, retried.ID, nil)
	w.record("job cancel", nil, nil, err)
	latest, _, err := w.client.Pipelines.GetLatestPipeline(project, &gitlab.GetLatestPipelineOptions{Ref: gitlab.Ptr("main")})
	w.record("pipeline latest", map[string]any{"id": pipeline.ID}, latest, err)
	commit, _, err := w.client.Commits.GetCommit(project, "main", nil)
	must("commit", err)
	w.record("commit last pipeline", map[string]any{"id": pipeline.ID}, commit.LastPipeline, nil)
	groups, _, err := w.client.ResourceGroup.GetAllResourceGroupsForAProject(project)
	must("resource groups", err)
	w.record("resource groups", map[string]any{"key": "production"}, groups[0], nil)
	mode := &gitlab.EditAnExistingResourceGroupOptions{ProcessMode: gitlab.Ptr(gitlab.NewestFirst)}
	changed, _, err := w.client.ResourceGroup.EditAnExistingResourceGroup(project, "production", mode)
	w.record("resource group update", mode, changed, err)
}

func (w *walk) environment(project int64) {
	found, _, err := w.client.Environments.ListEnvironments(
		project, &gitlab.ListEnvironmentsOptions{Name: gitlab.Ptr("production")})
	must("environment of a job", err)
	w.record("environment of a job",
		map[string]any{"name": "production", "state": "available", "external_url": "https://example.com"}, found[0], nil)
	deployments, _, err := w.client.Deployments.ListProjectDeployments(
		project, &gitlab.ListProjectDeploymentsOptions{Environment: gitlab.Ptr("production")})
	must("deployments", err)
	w.record("deployment of a job", map[string]any{"status": "success", "ref": "main"}, deployments[0], nil)
	options := &gitlab.CreateEnvironmentOptions{
		Name:        gitlab.Ptr("review/go"),
		Description: gitlab.Ptr("for a review"),
		ExternalURL: gitlab.Ptr("https://review.example.com"),
		Tier:        gitlab.Ptr("testing"),
	}
	environment, _, err := w.client.Environments.CreateEnvironment(project, options)
	w.record("environment create", options, environment, err)
	change := &gitlab.EditEnvironmentOptions{ExternalURL: gitlab.Ptr("https://other.example.com"), Tier: gitlab.Ptr("staging")}
	environment, _, err = w.client.Environments.EditEnvironment(project, environment.ID, change)
	w.record("environment update", change, environment, err)
	stopped, _, err := w.client.Environments.StopEnvironment(project, environment.ID, nil)
	w.record("environment stop", map[string]any{"state": "stopped"}, stopped, err)
	_, err = w.client.Environments.DeleteEnvironment(project, environment.ID)
	w.record("environment remove", nil, nil, err)
	_, _, err = w.client.Environments.GetEnvironment(project, environment.ID)
	w.gone("environment gone", err)
}

func (w *walk) protected(project int64) {
	branch, _, err := w.client.ProtectedBranches.ProtectRepositoryBranches(project, &gitlab.ProtectRepositoryBranchesOptions{
		Name:             gitlab.Ptr("release/*"),
		PushAccessLevel:  gitlab.Ptr(gitlab.MaintainerPermissions),
		MergeAccessLevel: gitlab.Ptr(gitlab.DeveloperPermissions),
		AllowForcePush:   gitlab.Ptr(true),
	})
	must("protected branch create", err)
	levels := map[string]any{
		"name": branch.Name, "push": branch.PushAccessLevels[0].AccessLevel,
		"merge": branch.MergeAccessLevels[0].AccessLevel, "allow_force_push": branch.AllowForcePush,
	}
	w.record("protected branch create",
		map[string]any{"name": "release/*", "push": 40, "merge": 30, "allow_force_push": true}, levels, nil)
	changed, _, err := w.client.ProtectedBranches.UpdateProtectedBranch(
		project, "release/*", &gitlab.UpdateProtectedBranchOptions{AllowForcePush: gitlab.Ptr(false)})
	w.record("protected branch update", map[string]any{"allow_force_push": false}, changed, err)
	_, err = w.client.ProtectedBranches.UnprotectRepositoryBranches(project, "release/*")
	w.record("protected branch remove", nil, nil, err)
	_, _, err = w.client.ProtectedBranches.GetProtectedBranch(project, "release/*")
	w.gone("protected branch gone", err)
	tag, _, err := w.client.ProtectedTags.ProtectRepositoryTags(project, &gitlab.ProtectRepositoryTagsOptions{
		Name: gitlab.Ptr("v*"), CreateAccessLevel: gitlab.Ptr(gitlab.MaintainerPermissions),
	})
	must("protected tag create", err)
	w.record("protected tag create", map[string]any{"name": "v*", "create": 40},
		map[string]any{"name": tag.Name, "create": tag.CreateAccessLevels[0].AccessLevel}, nil)
	_, err = w.client.ProtectedTags.UnprotectRepositoryTags(project, "v*")
	w.record("protected tag remove", nil, nil, err)
}

func (w *walk) tokens(project, group int64) {
	expires := gitlab.ISOTime(time.Now().AddDate(0, 1, 0))
	options := &gitlab.CreateProjectAccessTokenOptions{
		Name:        gitlab.Ptr("robot"),
		Description: gitlab.Ptr("for a robot"),
		Scopes:      gitlab.Ptr([]string{"api", "read_repository"}),
		AccessLevel: gitlab.Ptr(gitlab.DeveloperPermissions),
		ExpiresAt:   &expires,
	}
	token, _, err := w.client.ProjectAccessTokens.CreateProjectAccessToken(project, options)
	w.record("project token create", options, token, err)
	robot, err := gitlab.NewClient(token.Token, gitlab.WithBaseURL(os.Args[1]), gitlab.WithoutRetries())
	must("project token", err)
	own, _, err := robot.Projects.GetProject(project, nil)
	w.record("project token use", map[string]any{"id": project}, own, err)
	renewed, _, err := w.client.ProjectAccessTokens.RotateProjectAccessToken(project, token.ID, nil)
	w.record("project token rotate", map[string]any{"name": "robot"}, renewed, err)
	_, err = w.client.ProjectAccessTokens.RevokeProjectAccessToken(project, renewed.ID)
	w.record("project token revoke", nil, nil, err)
	ofGroup := &gitlab.CreateGroupAccessTokenOptions{
		Name:        gitlab.Ptr("group robot"),
		Scopes:      gitlab.Ptr([]string{"read_api"}),
		AccessLevel: gitlab.Ptr(gitlab.ReporterPermissions),
		ExpiresAt:   &expires,
	}
	groupToken, _, err := w.client.GroupAccessTokens.CreateGroupAccessToken(group, ofGroup)
	w.record("group token create", ofGroup, groupToken, err)
	_, err = w.client.GroupAccessTokens.RevokeGroupAccessToken(group, groupToken.ID)
	w.record("group token revoke", nil, nil, err)
	deploy := &gitlab.CreateProjectDeployTokenOptions{
		Name: gitlab.Ptr("mirror"), Username: gitlab.Ptr("mirror-user"), Scopes: gitlab.Ptr([]string{"read_repository"}),
	}
	deployToken, _, err := w.client.DeployTokens.CreateProjectDeployToken(project, deploy)
	w.record("deploy token create", deploy, deployToken, err)
	_, err = w.client.DeployTokens.DeleteProjectDeployToken(project, deployToken.ID)
	w.record("deploy token remove", nil, nil, err)
}

func (w *walk) hooks(project, group int64) {
	options := &gitlab.AddProjectHookOptions{
		URL:                    gitlab.Ptr("https://hooks.example.com/ci"),
		Name:                   gitlab.Ptr("chat"),
		Description:            gitlab.Ptr("tells the chat"),
		PipelineEvents:         gitlab.Ptr(true),
		JobEvents:              gitlab.Ptr(true),
		PushEvents:             gitlab.Ptr(true),
		PushEventsBranchFilter: gitlab.Ptr("main"),
		EnableSSLVerification:  gitlab.Ptr(true),
	}
	hook, _, err := w.client.Projects.AddProjectHook(project, options)
	w.record("hook create", options, hook, err)
	change := &gitlab.EditProjectHookOptions{URL: gitlab.Ptr("https://hooks.example.com/other"), JobEvents: gitlab.Ptr(false)}
	hook, _, err = w.client.Projects.EditProjectHook(project, hook.ID, change)
	w.record("hook update", change, hook, err)
	_, err = w.client.Projects.DeleteProjectHook(project, hook.ID)
	w.record("hook remove", nil, nil, err)
	_, _, err = w.client.Projects.GetProjectHook(project, hook.ID)
	w.gone("hook gone", err)
	ofGroup := &gitlab.AddGroupHookOptions{URL: gitlab.Ptr("https://hooks.example.com/group"), PipelineEvents: gitlab.Ptr(true)}
	groupHook, _, err := w.client.Groups.AddGroupHook(group, ofGroup)
	w.record("group hook create", ofGroup, groupHook, err)
	_, err = w.client.Groups.DeleteGroupHook(group, groupHook.ID)
	w.record("group hook remove", nil, nil, err)
}

func (w *walk) statuses(project int64) {
	commit, _, err := w.client.Commits.GetCommit(project, "main", nil)
	must("commit", err)
	options := &gitlab.SetCommitStatusOptions{
		State: gitlab.Success, Name: gitlab.Ptr("external"), TargetURL: gitlab.Ptr("https://scan.example.com/1"),
		Description: gitlab.Ptr("a scan"), Ref: gitlab.Ptr("main"),
	}
	status, _, err := w.client.Commits.SetCommitStatus(project, commit.ID, options)
	must("commit status create", err)
	sent := fields(options)
	sent["status"] = sent["state"]
	delete(sent, "state")
	w.record("commit status create", sent, status, nil)
	list, _, err := w.client.Commits.GetCommitStatuses(
		project, commit.ID, &gitlab.GetCommitStatusesOptions{Name: gitlab.Ptr("external")})
	must("commit statuses", err)
	w.record("commit statuses", map[string]any{"name": "external"}, list[0], nil)
	requests, _, err := w.client.MergeRequests.ListProjectMergeRequests(project, nil)
	w.record("merge requests", map[string]any{"count": 0}, map[string]any{"count": len(requests)}, err)
}

func (w *walk) scope(project int64) {
	_, err := w.client.JobTokenScope.PatchProjectJobTokenAccessSettings(
		project, &gitlab.PatchProjectJobTokenAccessSettingsOptions{Enabled: true})
	w.record("job token scope update", nil, nil, err)
	settings, _, err := w.client.JobTokenScope.GetProjectJobTokenAccessSettings(project)
	w.record("job token scope", map[string]any{"inbound_enabled": true}, settings, err)
}

func (w *walk) remove(project, group int64) {
	_, err := w.client.Projects.DeleteProject(project, nil)
	w.record("project remove", nil, nil, err)
	_, err = w.client.Groups.DeleteGroup(group, nil)
	w.record("group remove", nil, nil, err)
	_, _, err = w.client.Groups.GetGroup(group, nil)
	w.gone("group gone", err)
}

// fields returns the JSON fields of a request, so that the test compares what really went over the wire.
func fields(options any) map[string]any {
	text, err := json.Marshal(options)
	must("fields", err)
	var values map[string]any
	must("fields", json.Unmarshal(text, &values))
	return values
}
