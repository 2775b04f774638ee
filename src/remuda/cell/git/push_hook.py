"""The program that git runs before a push moves refs: it refuses pushes, and notes what the others ask for.

Decided here: which refs people may push. Branches, tags and merge requests only: whatever else a repository holds means
something to git itself (`refs/replace` changes what objects contain) or to the cell. A name that can be mistaken for
something else (a commit, an option, `HEAD`, a whole ref) is none, and no tag gets the name of the protected branch.
What is there already may be removed whatever its name. The refs that the pusher may not move, or move forward only,
and whether the first branch is theirs to push, come from `remuda.cell.http.git.smart_http`.

Invariants: a refused push leaves no note; no line of a note comes from a push option, except after the word that says
so. At the time of the hook git has not checked the names of the refs yet; one with a line feed in it is read as two,
and each of them must pass.
"""

FOLDER = "push-notes"

USER_VARIABLE = "REMUDA_USER"
"""Names the person who pushes to the hook."""
REFUSED_VARIABLE = "REMUDA_REFUSED_REF"
"""Names the ref that this person may not push to."""
FIRST_VARIABLE = "REMUDA_REFUSE_FIRST"
"""Not empty: there is no default branch yet, and this person may not push the branch that becomes it."""
FORWARD_VARIABLE = "REMUDA_FORWARD_REF"
"""Names the ref that may only get commits on top of those it has: nobody may force a push to it."""
NAMESAKE_VARIABLE = "REMUDA_NAMESAKE_REF"
"""Names the tag that nobody may push, because the protected branch has its name."""

FORCE_REFUSED = (
    "is protected, and this is a force push: it would take commits away from it. Push to another branch, or let a "
    "maintainer allow force pushes: PATCH /projects/:id/protected_branches/:name with allow_force_push=true"
)
FIRST_REFUSED = (
    "cannot be pushed: the project has no default branch yet, and its first branch becomes that, which is protected. "
    "Let a maintainer push the first branch"
)
NAMESAKE_REFUSED = (
    "has the name of the protected branch, and whoever asks for that branch could get the tag instead; give the tag "
    "another name"
)
_TAKEN = (
    "cannot be pushed; push to a branch (refs/heads/NAME), a tag (refs/tags/NAME) or a merge request "
    "(refs/merge-requests/NUMBER/head or refs/merge-requests/NUMBER/merge). NAME is not HEAD, not the whole name of a "
    "commit, and does not begin with refs/ or a dash"
)

# Without a name or options a note is needed only to outdo an older one of the same ref and commit.
HOOK = f"""#!/bin/sh
line_feed='
'
note=
refuse() {{
  [ -z "$note" ] || rm -f "$note"
  printf '%s\\n' "$1" >&2
  exit 1
}}
count=${{GIT_PUSH_OPTION_COUNT:-0}}
folder=$GIT_DIR/{FOLDER}
exec 3>/dev/null
if [ "$count" -gt 0 ] || [ -n "${USER_VARIABLE}" ] || [ -d "$folder" ]; then
  tries=0
  until mkdir -p "$folder" && note=$(mktemp "$folder/.XXXXXXXXXX"); do
    # The cell may just have removed the folder, because it was empty.
    tries=$((tries + 1))
    [ "$tries" -lt 3 ] || exit 1
  done
  exec 3>"$note" || exit 1
fi
printf 'user %s\\n' "${USER_VARIABLE}" >&3 || exit 1
while read -r old new ref; do
  if [ -n "${REFUSED_VARIABLE}" ] && [ "$ref" = "${REFUSED_VARIABLE}" ]; then
    refuse "You may not push to $ref, which is protected; push to another branch, or ask a maintainer."
  fi
  case $ref in
  refs/heads/*) [ -z "${FIRST_VARIABLE}" ] || refuse "$ref {FIRST_REFUSED}." ;;
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
    '' | HEAD | refs/* | -*) refuse "$ref {_TAKEN}" ;;
    esac
    case ${{#name}} in
    40 | 64)
      case $name in
      *[!0-9a-f]*) ;;
      *) refuse "$ref {_TAKEN}" ;;
      esac
      ;;
    esac
    if [ "$ref" = "${NAMESAKE_VARIABLE}" ]; then
      refuse "$ref {NAMESAKE_REFUSED}"
    fi
    if [ "$ref" = "${FORWARD_VARIABLE}" ]; then
      case $old in
      *[!0]*) git merge-base --is-ancestor "$old" "$new" || refuse "$ref {FORCE_REFUSED}" ;;
      esac
    fi
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
