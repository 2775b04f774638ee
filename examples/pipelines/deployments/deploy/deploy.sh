#!/bin/sh
# deploy.sh TARGET RELEASE: puts release.txt there, remembers what was there before, and refuses to run twice at once.
set -e
target=$1
release=$2
root=$(dirname "$target")
lock=$root/.lock-${DEPLOY_LOCK:-$CI_ENVIRONMENT_SLUG}
mkdir -p "$target"
mkdir "$lock"
trap 'rmdir "$lock"' EXIT
test ! -e "$target/current" || mv "$target/current" "$target/previous"
cp release.txt "$target/current"
echo "$CI_ENVIRONMENT_NAME $release" >> "$root/log"
