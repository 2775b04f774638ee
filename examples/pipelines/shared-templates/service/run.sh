#!/bin/sh
echo "serving on port ${PORT:-8080}"
