"""Creates and removes projects and their repositories, makes commits, and starts the pipelines of pushes.

Every branch, tag or merge request that has moved to another commit starts a pipeline, up to a limit per push. To find
them, the cell compares the refs in the repository with those that it has already processed ("seen refs" in the store).
So it also finds a push whose client or process died, and processes it later.

Invariant: a ref is stored as processed in the same transaction as its pipeline, so no move starts two pipelines, and
none is lost."""

import asyncio
import re
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from remuda.cell.core.access.protected_refs import HEADS, TAGS, Rule, allows_force_push, is_protected, rules_of
from remuda.cell.core.pipelines.creation import merge_request_iid
from remuda.cell.core.pipelines.push_options import read_push_options
from remuda.cell.errors import CellError, ConflictError, ForbiddenError, InvalidError
from remuda.cell.git.commits import FileAction, NewCommit, apply_actions, is_branch_name, is_done
from remuda.cell.git.port import (
    FORCE_REFUSED,
    LOCKED,
    MOVE_REFUSED,
    NAMESAKE_REFUSED,
    LogFilter,
    Pushes,
    PushNote,
    Repositories,
    find_note,
)
from remuda.cell.pipelines.creation import Pipelines
from remuda.cell.pipelines.webhooks import Webhooks
from remuda.cell.projects.file_locks import find_locked, list_locked_paths
from remuda.cell.projects.namespaces import Namespaces, list_all_projects
from remuda.cell.projects.paths import check_path
from remuda.cell.projects.refs import default_branch, tag_with_name_of
from remuda.cell.store.ports import Store
from remuda.cell.values import ORGANIZATION_ID, USER_ID, Project
from remuda.cell.values.people import FIRST_USER, ProjectFilter, User
from remuda.cell.values.pipeline_requests import PipelineRequest
from remuda.cell.values.pushes import PushOutcome
from remuda.lib.clock import Clock
from remuda.lib.killpoints import reach
from remuda.lib.waiting import wait_for_any_event
from remuda.model.job import ProjectId
from remuda.pipeline.facts import MERGE_REQUEST, NO_SHA
from remuda.telemetry.logs import logger

LOOKS_AFTER_SECONDS = (0.0, 10.0, 60.0)
"""When all repositories are checked after a start. More than once, because a git process of a killed cell may live on
for a while and move its ref later."""
ACTIVITY_SECONDS = 3600.0
"""How often at most the time of the last push to a project is stored."""
RETRY_SECONDS = 5.0
ABANDONED_SECONDS = 60.0
"""How long a git process of an abandoned push may still move refs."""

MOST_OUTCOMES = 1000
"""Results of so many refs are collected for the answer to a push."""
COMMITS_AT_ONCE = 2
"""How many commits are created at the same time: each needs the list of all files of a repository in memory."""
_SKIP = re.compile(r"\[(ci[ _-]skip|skip[ _-]ci)\]", re.IGNORECASE)
_COMMIT_TRIES = 3

_log = logger("cell")


class CommitRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The body of `POST /projects/:id/repository/commits`."""

    branch: str
    commit_message: str
    actions: list[FileAction]
    start_branch: str | None = None
    start_sha: str | None = None
    author_name: str | None = None
    author_email: str | None = None


StopEnvironments = Callable[[Project, str], Awaitable[None]]
"""Stops the environments that a branch of a project was deployed to, after the branch was deleted."""


class Projects:
    def __init__(
        self,
        *,
        store: Store,
        repos: Repositories,
        pushes: Pushes,
        pipelines: Pipelines,
        clock: Clock,
        pipelines_per_push: int,
        stop_environments: StopEnvironments,
        webhooks: Webhooks | None = None,
    ) -> None:
        self.repos = repos
        self._stop_environments = stop_environments
        self.namespaces = Namespaces(store, clock)
        self._store = store
        self._pipelines = pipelines
        self._clock = clock
        self._pipelines_per_push = pipelines_per_push
        self._webhooks = webhooks
        self._locks: dict[ProjectId, asyncio.Lock] = {}
        self._unsynced: set[ProjectId] = set()
        self._pushes = pushes
        self._commits = asyncio.Semaphore(COMMITS_AT_ONCE)
        self._abandoned: dict[str, float] = {}
        """Abandoned pushes, and when each was found."""
        self._outcomes: dict[ProjectId, list[dict[str, PushOutcome]]] = {}
        """For each push under way a dictionary with the result for each ref."""

    async def create(
        self,
        path: str,
        *,
        name: str,
        description: str = "",
        default_branch: str = "main",
        visibility: str = "private",
        organization_id: int = ORGANIZATION_ID,
        creator_id: int = USER_ID,
        settings: Mapping[str, Any] = {},
    ) -> Project:
        """Create a project with an empty repository. Groups in its path that do not exist are created, in the
        organization `organization_id`. `settings` are further fields of `Project`. Raises InvalidError if a value is
        invalid, ConflictError if the path is taken."""
        if not is_branch_name(default_branch):
            raise InvalidError(f"default_branch: {default_branch!r} is no name for a branch")
        check_path(path)
        if await self._store.projects.find_project(path):
            raise ConflictError("has already been taken")
        namespace = await self.namespaces.ensure(path.rpartition("/")[0], organization_id)
        # The repository first, so that a project always has one. A death in between leaves an empty repository.
        folder = secrets.token_hex(16)
        repo = f"{folder[:2]}/{folder}.git"
        await self.repos.create(repo, default_branch)
        project = Project(
            id=ProjectId(0),
            path=path,
            name=name,
            created_at=self._clock.now(),
            description=description,
            default_branch=default_branch,
            repo_path=repo,
            organization_id=namespace.organization_id,
            namespace_id=namespace.id,
            group_ids=namespace.group_ids,
            visibility=visibility,
            creator_id=creator_id,
            **settings,
        )
        try:
            added = await self._store.projects.add_project(project)
        except ConflictError:
            await self.repos.remove(repo)
            raise ConflictError("has already been taken") from None
        self.repos.link(repo, path)
        return added

    async def remove(self, project: Project) -> None:
        """Mark the project as deleted, free its path, remove its repository. `upkeep` removes its pipelines later."""
        removed = await self._store.projects.change_project(
            project.id, lambda row: _mark_removed(row, self._clock.now())
        )
        if removed is not None:
            await self._remove_repository(removed)

    async def _remove_repository(self, project: Project) -> None:
        """Remove the repository, after waiting for a `sync_refs` (start of its pipelines) that still uses it."""
        async with self._locks.setdefault(project.id, asyncio.Lock()):
            self._unsynced.discard(project.id)
            await self.repos.remove(project.repo_path)

    async def commit(self, project: Project, request: CommitRequest, user: User = FIRST_USER) -> str:
        """Create a commit from file actions, start its pipeline, and return its hash; a repeated request returns the
        existing commit. Raises InvalidError if an action is impossible, ForbiddenError if another user has locked a
        changed file, ConflictError if the branch moved during each of several tries."""
        if not is_branch_name(request.branch):
            raise InvalidError(f"branch: {request.branch!r} is no name for a branch")
        async with self.track_push(project):
            for tries_left in reversed(range(_COMMIT_TRIES)):
                try:
                    sha = await self._commit(project, request, user)
                    break
                except ConflictError:
                    if not tries_left:
                        raise
        return sha

    @asynccontextmanager
    async def track_push(self, project: Project) -> AsyncIterator[dict[str, PushOutcome]]:
        """Context manager: after the block, start pipelines of refs moved in it; if this process dies, another does.
        Yields a dictionary that gets the result for each ref, as soon as this process has it."""
        outcomes: dict[str, PushOutcome] = {}
        with self._pushes.begin(project.id) as acted_on:
            self._outcomes.setdefault(project.id, []).append(outcomes)
            try:
                yield outcomes
            finally:
                reach("cell.ref_updated")
                try:
                    await self.act_on_refs(project)
                finally:
                    self._forget_outcomes(project, outcomes)
                if project.id not in self._unsynced:
                    acted_on()

    def _forget_outcomes(self, project: Project, outcomes: dict[str, PushOutcome]) -> None:
        left = [other for other in self._outcomes.get(project.id, ()) if other is not outcomes]
        if left:
            self._outcomes[project.id] = left
        else:
            self._outcomes.pop(project.id, None)

    def _note_outcome(self, project: Project, outcome: PushOutcome) -> None:
        """Tell all pushes that are under way: each starts the pipelines of all refs that have moved."""
        for outcomes in self._outcomes.get(project.id, ()):
            if len(outcomes) < MOST_OUTCOMES:
                outcomes[outcome.ref] = outcome

    def note_push(self, project: Project, refs: Mapping[str, str], user_id: int) -> None:
        """Record, before `refs` (full names with object hashes) move, which user moves them: their pipelines run with
        the rights of that user. If there is no record, the user is the project's creator. So moves by the creator are
        recorded only if the repository has other records, which could be mistaken for theirs."""
        if user_id != project.creator_id or self._pushes.has_notes(project.repo_path):
            self._pushes.add_note(project.repo_path, refs, user_id)

    async def put_refs(self, project: Project, refs: Mapping[str, str], user: User) -> None:
        """Set refs to existing commits on behalf of `user`, and start their pipelines as after a push. Raises GitError
        if git cannot set them, ForbiddenError for a force push to a protected branch or a move of a protected tag,
        InvalidError for a tag with the name of the default branch."""
        for ref, target in refs.items():
            await self.check_namesake(project, ref, target)
        before = await self._check_forward(project, refs)
        if not self._pipelines_per_push:
            await self.repos.put_refs(project.repo_path, refs, before)
            await self._store.projects.put_seen_refs(project.id, refs)
            return
        async with self.track_push(project):
            self.note_push(project, refs, user.id)
            await self.repos.put_refs(project.repo_path, refs, before)

    async def _check_forward(self, project: Project, refs: Mapping[str, str]) -> dict[str, str]:
        """Check that `refs` is no force push to a protected branch, unless that is allowed, and moves no protected tag.
        Raises ForbiddenError if it does. Returns the protected refs with their current objects (zeros: none), which
        must not change until the refs are set."""
        tips: dict[str, str] = {}
        rules = self.ref_rules(project)
        for ref in [ref for ref in refs if ref.startswith(TAGS) and is_protected(rules, ref)]:
            tag = await self.repos.object_of(project.repo_path, ref)
            if tag is not None and tag != refs[ref]:
                raise ForbiddenError(f"{ref} {MOVE_REFUSED}")
            tips[ref] = tag or "0" * len(refs[ref])
        for ref in [ref for ref in refs if ref.startswith(HEADS) and not allows_force_push(rules, ref)]:
            tip = await self.repos.commit_of(project.repo_path, ref)
            if tip is not None:
                if not await self.repos.is_ancestor(project.repo_path, tip, of=refs[ref]):
                    raise ForbiddenError(f"{ref} {FORCE_REFUSED}")
                tips[ref] = tip
        return tips

    async def _commit(self, project: Project, request: CommitRequest, user: User) -> str:
        async with self._commits:
            return await self._commit_in_turn(project, request, user)

    async def _commit_in_turn(self, project: Project, request: CommitRequest, user: User) -> str:
        repo = project.repo_path
        parent = await self._parent(project, request)
        tree = await self.repos.tree(repo, parent) if parent else {}
        try:
            changes = apply_actions(tree, request.actions)
            await self._check_last_commits(repo, parent, request.actions)
        except InvalidError:
            last = await self.repos.commit(repo, parent) if parent else None
            if last is None or last.message.strip() != request.commit_message.strip():
                raise
            before = await self.repos.tree(repo, last.parents[0]) if last.parents else {}
            if is_done(before, tree, request.actions):
                return last.sha
            raise
        if path := find_locked(changes, await list_locked_paths(self._store, project, user.id)):
            raise ForbiddenError(f"{path} {LOCKED}")
        return await self.repos.add_commit(
            repo,
            NewCommit(
                branch=request.branch,
                parent=parent,
                message=request.commit_message,
                author_name=request.author_name or user.name,
                author_email=request.author_email or user.email,
                at=int(self._clock.now()),
                changes=changes,
            ),
            before_move=lambda sha: self.note_push(project, {f"refs/heads/{request.branch}": sha}, user.id),
        )

    async def _check_last_commits(self, repo: str, parent: str | None, actions: Sequence[FileAction]) -> None:
        """Raise InvalidError if the last commit of a file is not the one that the caller has seen."""
        for action in actions:
            if not action.last_commit_id or action.action == "create" or parent is None:
                continue
            path = action.previous_path or action.file_path
            newest = await self.repos.log(repo, parent, skip=0, count=1, selection=LogFilter(path=path))
            if newest and newest[0].sha != action.last_commit_id:
                seen = f"{newest[0].sha[:8]} since {action.last_commit_id}"
                raise InvalidError(f"{path} was changed by commit {seen}; read it again and repeat")

    async def _parent(self, project: Project, request: CommitRequest) -> str | None:
        """Return the parent of the new commit: the last commit of the branch or, for a new branch, the commit where the
        request wants it to start; None if the repository is empty. Raises InvalidError if the branch exists and the
        request names another start, or if a new branch has no start or one that does not exist."""
        tip = await self.repos.commit_of(project.repo_path, f"refs/heads/{request.branch}")
        start = request.start_branch or request.start_sha
        if tip is not None:
            if start and start not in (request.branch, tip):
                raise InvalidError(
                    f"A branch called '{request.branch}' already exists. Switch to that branch in order to make changes"
                )
            return tip
        if start:
            sha = await self.repos.resolve(project.repo_path, start)
            if sha is None:
                raise InvalidError(f"Cannot find start_branch or start_sha '{start}'")
            return sha
        if not await self.repos.is_empty(project.repo_path):
            raise InvalidError("You can only create or edit files when you are on a branch")
        return None

    async def act_on_refs(self, project: Project) -> None:
        """Call `sync_refs`. A CellError is logged, and `watch` tries again: the repository still has the commits."""
        self._unsynced.add(project.id)
        try:
            await self.sync_refs(project)
        except CellError as error:
            _log.warning("cannot start the pipelines of a push; trying again", project=project.path, error=str(error))

    async def sync_refs(self, project: Project) -> None:
        """Start pipelines for refs moved since the last call (up to a limit). CellError if that fails: call again."""
        async with self._locks.setdefault(project.id, asyncio.Lock()), self._pushes.take_turn(project.repo_path):
            self._unsynced.add(project.id)
            refs = await self.repos.refs(project.repo_path)
            # Read after the refs: a push writes its note before it moves a ref.
            notes = self._pushes.notes(project.repo_path)
            processed = await self._store.projects.load_seen_refs(project.id)
            deleted = dict.fromkeys(ref for ref in processed if ref not in refs)
            if deleted and self._webhooks is not None:
                await self._webhooks.note_refs(project, dict.fromkeys(deleted, NO_SHA), processed, {})
            if deleted:
                for ref in deleted:
                    if ref.startswith(HEADS):
                        await self._stop_environments(project, ref.removeprefix(HEADS))
                await self._store.projects.put_seen_refs(project.id, deleted)
            await self._follow_first_branch(project, refs)
            moved = {ref: sha for ref, sha in refs.items() if processed.get(ref) != sha}
            pushed = await self._find_objects(project, refs, notes)
            notes_of = {ref: note for ref in moved if (note := find_note(notes, ref, pushed.get(ref, ""))) is not None}
            if moved and self._webhooks is not None:
                users = {ref: note.user_id for ref, note in notes_of.items() if note.user_id is not None}
                await self._webhooks.note_refs(project, moved, processed, users)
            if moved or deleted:
                await self._note_activity(project)
            await self._start_pipelines(project, moved, processed, notes_of)
            if notes:
                self._pushes.remove_notes(project.repo_path, notes, pushed, self._clock.now())
            self._unsynced.discard(project.id)

    async def _note_activity(self, project: Project) -> None:
        """Store the time of a push, unless the stored time is recent."""
        now = self._clock.now()
        if now - project.last_activity_at >= ACTIVITY_SECONDS:
            await self._store.projects.change_project(
                project.id, lambda row: msgspec.structs.replace(row, last_activity_at=now)
            )

    async def _find_objects(
        self, project: Project, refs: Mapping[str, str], notes: Sequence[PushNote]
    ) -> dict[str, str]:
        """Return the current object (of an annotated tag the tag itself) of each existing ref in push `notes`."""
        objects = {}
        for ref in {ref for note in notes for ref in note.refs} & refs.keys():
            is_tag = ref.startswith("refs/tags/")
            objects[ref] = (await self.repos.object_of(project.repo_path, ref) if is_tag else None) or refs[ref]
        return objects

    async def _start_pipelines(
        self,
        project: Project,
        moved: Mapping[str, str],
        processed: Mapping[str, str],
        notes: Mapping[str, PushNote],
    ) -> None:
        """Start a pipeline for each moved ref, the default branch first. Refs above the limit per push start no
        pipeline and count as processed. `moved`: the new commit of each ref; `processed`: the commits before the push;
        `notes`: the records of who pushed each ref with which options."""
        default = f"refs/heads/{self.repos.head(project.repo_path)}"
        waiting = dict(sorted(moved.items(), key=lambda item: item[0] != default))
        started = 0
        while waiting and started < self._pipelines_per_push:
            ref, sha = next(iter(waiting.items()))
            outcome = await self._start_pipeline(
                project, ref, sha, before_sha=processed.get(ref, NO_SHA), note=notes.get(ref)
            )
            started += outcome.pipeline is not None
            self._note_outcome(project, outcome)
            del waiting[ref]
        if waiting:
            if self._pipelines_per_push:
                _log.warning(
                    "push moved too many refs; those beyond the limit start no pipeline",
                    project=project.path,
                    limit=self._pipelines_per_push,
                    without_pipeline=len(waiting),
                )
                for ref, sha in waiting.items():
                    reason = f"a push starts at most {self._pipelines_per_push}"
                    self._note_outcome(project, PushOutcome(ref=ref, sha=sha, reason=reason))
            await self._store.projects.put_seen_refs(project.id, waiting)

    async def _follow_first_branch(self, project: Project, refs: Mapping[str, str]) -> None:
        """If the default branch does not exist in the repository, make the alphabetically first branch the default."""
        branches = [ref.removeprefix("refs/heads/") for ref in refs if ref.startswith("refs/heads/")]
        if branches and self.repos.head(project.repo_path) not in branches:
            await self.repos.put_head(project.repo_path, branches[0])

    async def _start_pipeline(
        self, project: Project, ref: str, sha: str, *, before_sha: str, note: PushNote | None
    ) -> PushOutcome:
        """Start the pipeline of a moved ref, if it gets one; without a pipeline file, for example, it does not.
        `before_sha`: its commit before the push; `note`: who pushed it with which options, if recorded."""
        is_request = ref.startswith("refs/merge-requests/")
        if is_request and merge_request_iid(ref) is None:
            await self._store.projects.put_seen_refs(project.id, {ref: sha})
            return PushOutcome(ref=ref, sha=sha)
        options = read_push_options(note.options if note else ())
        if options.ignored:
            _log.warning("ignoring invalid push options", project=project.path, ref=ref, options=options.ignored)
        commit = await self.repos.commit(project.repo_path, sha)
        request = PipelineRequest(
            project=project,
            source=MERGE_REQUEST if is_request else "push",
            ref=ref,
            sha=sha,
            before_sha=before_sha,
            variables=options.variables,
            inputs=options.inputs,
            predefined=options.merge_request if is_request else {},
            merge_request_lists=options.merge_request_lists if is_request else {},
            sees=(ref, sha),
            user_id=(note.user_id if note else None) or project.creator_id,
        )
        skip_reason = "the push option ci.skip asks for it" if options.skip else ""
        if not skip_reason and _SKIP.search(commit.message if commit else ""):
            skip_reason = "the commit message asks for it"
        outcome = await self._pipelines.push(request, skip_reason=skip_reason)
        return msgspec.structs.replace(outcome, ignored_options=options.ignored)

    def ref_rules(self, project: Project) -> tuple[Rule, ...]:
        """Return the rules for the protected branches and tags of a project."""
        return rules_of(project, default_branch(self.repos, project))

    async def find_default_ref(self, project: Project) -> str | None:
        """Return the full ref of the default branch; None until it exists."""
        head = self.repos.head(project.repo_path)
        ref = f"refs/heads/{head}"
        return ref if head and await self.repos.commit_of(project.repo_path, ref) is not None else None

    async def check_namesake(self, project: Project, ref: str, target: str = "") -> None:
        """Raise InvalidError for a tag named like the default branch, unless the tag exists and is at `target`."""
        protected = await self.find_default_ref(project) if ref.startswith("refs/tags/") else None
        if protected is None or ref != tag_with_name_of(protected):
            return
        if not target or await self.repos.object_of(project.repo_path, ref) != target:
            raise InvalidError(f"{ref} {NAMESAKE_REFUSED}")

    async def has_ref(self, project: Project, ref: str) -> bool:
        """True if the full ref exists. Runs git, which is slow, only if the ref has no file of its own."""
        repo = project.repo_path
        return self.repos.has_ref_file(repo, ref) or await self.repos.commit_of(repo, ref) is not None

    async def watch(self, stop: asyncio.Event) -> None:
        """Until `stop` is set, start pipelines that pushes should have started: after the start of the process, look
        for moved refs in all repositories; later only in those where `sync_refs` failed or where a process died during
        a push. Also removes the repositories of deleted projects."""
        began = self._clock.monotonic()
        looks = list(LOOKS_AFTER_SECONDS)
        while not stop.is_set():
            try:
                if looks and self._clock.monotonic() - began >= looks[0]:
                    self._unsynced |= {project.id for project in await list_all_projects(self._store)}
                    for project in await list_all_projects(self._store, ProjectFilter(removed=True)):
                        await self._remove_repository(project)
                    looks.pop(0)
                abandoned = self._pushes.find_abandoned()
                self._unsynced.update(abandoned.values())
                for project_id in sorted(self._unsynced):
                    await self._retry(project_id)
                self._forget_pushes(abandoned)
            except CellError as error:
                _log.warning("cannot check for pushes whose pipelines are not started; trying again", error=str(error))
            await wait_for_any_event(self._clock, stop, within_seconds=RETRY_SECONDS, name="repositories")

    def _forget_pushes(self, abandoned: Mapping[str, ProjectId]) -> None:
        """Delete records of abandoned, processed pushes after `ABANDONED_SECONDS`: git could move refs until then."""
        now = self._clock.monotonic()
        self._abandoned = {name: self._abandoned.get(name, now) for name in abandoned}
        for name, project_id in abandoned.items():
            if project_id not in self._unsynced and now - self._abandoned[name] >= ABANDONED_SECONDS:
                self._pushes.forget(name)

    async def _retry(self, project_id: ProjectId) -> None:
        project = await self._store.projects.load_project(project_id)
        if project is None or project.removed_at is not None:
            self._unsynced.discard(project_id)
            return
        try:
            await self.act_on_refs(project)
        except Exception as error:  # noqa: BLE001 - one repository must not stop the others
            _log.error(
                "unexpected error in starting the pipelines of a push; trying again",
                project=project.path,
                exc_info=error,
            )


def _mark_removed(project: Project, now: float) -> Project | None:
    if project.removed_at is not None:
        return None
    return msgspec.structs.replace(project, path=f"{project.path}-deleted-{project.id}", removed_at=now)
