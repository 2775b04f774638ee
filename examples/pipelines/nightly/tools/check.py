"""Stands for the long work that is done at night."""

import json
import sys

if sys.argv[1] == "audit":
    print(json.dumps({"version": "15.0.0", "vulnerabilities": []}))
else:
    print(f"{sys.argv[1]}: good")
