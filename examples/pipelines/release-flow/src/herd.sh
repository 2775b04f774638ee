#!/bin/sh
# Prints the horses of the herd, or the program's version.
here=$(dirname "$0")
if [ "$1" = --version ]; then
    echo "herd $(cat "$here/VERSION")"
else
    printf '%s\n' Ash Bay Dun
fi
