"""The pre-receive hook of all repositories. It rejects pushes that are not allowed. For an accepted push it writes a
note: a file with the user, the refs and the push options, from which the cell starts pipelines.

People may push branches, tags and merge requests only: other refs mean something to git itself (`refs/replace` changes
what objects contain) or to the cell. The hook rejects a name that can be mistaken for something else (a commit, an
option, `HEAD`, a full ref), and a tag with the name of the default branch. It does not check names of refs that are
deleted. It rejects the deletion of a protected branch or tag, which would be a force push if it were pushed again, and
nobody may move a protected tag. It rejects new commits that change a file which another user has locked with Git LFS.

Invariants: a rejected push leaves no note; every line of a note that comes from a push option starts with `option `.
When the hook runs, git has not checked the names of the refs; a name with a line feed is read as two names, and is
rejected unless both are allowed."""

from remuda.cell.git.port import FIRST_REFUSED, FORCE_REFUSED, LOCKED, MOVE_REFUSED, NAMESAKE_REFUSED, PushRules

NOTES = "push-notes"
"""The folder in a repository where the hook writes its notes."""

_USER = "REMUDA_USER"
_PROTECTED = "REMUDA_PROTECTED_REFS"
_ALLOWED = "REMUDA_ALLOWED_REFS"
_FORCED = "REMUDA_FORCED_REFS"
_FIRST = "REMUDA_REFUSE_FIRST"
_NAMESAKE = "REMUDA_NAMESAKE_REF"
LOCKED_PATHS = "REMUDA_LOCKED_PATHS"
"""Variable with the path of a file that lists locked paths, each followed by a NUL; empty if there are none."""


def hook_variables(rules: PushRules) -> dict[str, str]:
    """Return the environment variables through which the pre-receive hook gets the rules of one push."""
    return {
        _USER: str(rules.user_id) if rules.user_id is not None else "",
        _PROTECTED: "\n".join(rules.protected_refs),
        _ALLOWED: "\n".join(rules.allowed_refs),
        _FORCED: "\n".join(rules.forced_refs),
        _FIRST: "yes" if rules.refuses_first else "",
        _NAMESAKE: rules.namesake_ref,
    }


_BAD_NAME = (
    "cannot be pushed; push to a branch (refs/heads/NAME), a tag (refs/tags/NAME) or a merge request "
    "(refs/merge-requests/NUMBER/head or refs/merge-requests/NUMBER/merge). NAME is not HEAD, not the whole name of a "
    "commit, and does not begin with refs/ or a dash"
)

_DELETE_REFUSED = "is protected, so git cannot delete it; a maintainer can: DELETE /projects/:id/repository"

# Without a user or options a note is needed only to replace an older one of the same ref and commit.
HOOK = f"""#!/bin/sh
line_feed='
'
note=
refuse() {{
  [ -z "$note" ] || rm -f "$note"
  printf '%s\\n' "$1" >&2
  exit 1
}}
# matches PATTERNS REF: one of the patterns, each on its own line, matches the whole ref.
matches() {{
  rest=$1
  while [ -n "$rest" ]; do
    pattern=${{rest%%"$line_feed"*}}
    case $rest in
    *"$line_feed"*) rest=${{rest#*"$line_feed"}} ;;
    *) rest= ;;
    esac
    case $2 in
    $pattern) return 0 ;;
    esac
  done
  return 1
}}
count=${{GIT_PUSH_OPTION_COUNT:-0}}
folder=$GIT_DIR/{NOTES}
exec 3>/dev/null
if [ "$count" -gt 0 ] || [ -n "${_USER}" ] || [ -d "$folder" ]; then
  tries=0
  until mkdir -p "$folder" && note=$(mktemp "$folder/.XXXXXXXXXX"); do
    # The cell may just have removed the folder, because it was empty.
    tries=$((tries + 1))
    [ "$tries" -lt 3 ] || exit 1
  done
  exec 3>"$note" || exit 1
fi
printf 'user %s\\n' "${_USER}" >&3 || exit 1
while read -r old new ref; do
  case $ref in
  refs/heads/*) [ -z "${_FIRST}" ] || refuse "$ref {FIRST_REFUSED}." ;;
  esac
  if matches "${_PROTECTED}" "$ref" && ! matches "${_ALLOWED}" "$ref"; then
    refuse "You may not push to $ref, which is protected; use another name, or ask a maintainer."
  fi
  case $new in
  *[!0]*) ;;
  *)
    case $ref in
    refs/heads/*) ! matches "${_PROTECTED}" "$ref" || refuse "$ref {_DELETE_REFUSED}/branches/:branch" ;;
    refs/tags/*) ! matches "${_PROTECTED}" "$ref" || refuse "$ref {_DELETE_REFUSED}/tags/:tag_name" ;;
    esac
    ;;
  esac
  case $new in
  *[!0]*)
    name=
    case $ref in
    refs/heads/*) name=${{ref#refs/heads/}} ;;
    refs/tags/*) name=${{ref#refs/tags/}} ;;
    refs/merge-requests/*/head | refs/merge-requests/*/merge)
      number=${{ref#refs/merge-requests/}}
      number=${{number%/*}}
      case $number in
      '' | 0* | *[!0-9]*) ;;
      *) name=request ;;
      esac
      ;;
    esac
    case $name in
    '' | HEAD | refs/* | -*) refuse "$ref {_BAD_NAME}" ;;
    esac
    case ${{#name}} in
    40 | 64)
      case $name in
      *[!0-9a-f]*) ;;
      *) refuse "$ref {_BAD_NAME}" ;;
      esac
      ;;
    esac
    # A tag may name something else than a commit, which has no changes of files.
    if [ -n "${LOCKED_PATHS}" ] && git cat-file -e "$new^{{commit}}" 2>/dev/null; then
      locked=$(xargs -0 git --literal-pathspecs -c core.quotePath=false log -1 -c --format= --name-only \\
        "$new" --not --all -- <"${LOCKED_PATHS}") || refuse "The locks of files cannot be checked; try again."
      [ -z "$locked" ] || refuse "${{locked%%"$line_feed"*}} {LOCKED}."
    fi
    if [ "$ref" = "${_NAMESAKE}" ]; then
      refuse "$ref {NAMESAKE_REFUSED}"
    fi
    case $ref in
    refs/heads/*)
      if matches "${_PROTECTED}" "$ref" && ! matches "${_FORCED}" "$ref"; then
        case $old in
        *[!0]*) git merge-base --is-ancestor "$old" "$new" || refuse "$ref {FORCE_REFUSED}" ;;
        esac
      fi
      ;;
    refs/tags/*)
      if matches "${_PROTECTED}" "$ref"; then
        case $old in
        *[!0]*) refuse "$ref {MOVE_REFUSED}" ;;
        esac
      fi
      ;;
    esac
    ;;
  esac
  printf 'ref %s %s\\n' "$new" "$ref" >&3 || exit 1
done
i=0
while [ "$i" -lt "$count" ]; do
  eval "option=\\${{GIT_PUSH_OPTION_$i}}"
  case $option in
  *"$line_feed"*) refuse "Push option $((i + 1)) has a line feed in it; push options have one line each." ;;
  esac
  printf 'option %s\\n' "$option" >&3 || exit 1
  i=$((i + 1))
done
[ -z "$note" ] || mv "$note" "$folder/${{note##*/.}}"
"""
