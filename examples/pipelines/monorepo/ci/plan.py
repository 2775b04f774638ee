"""Lists the parts of this repository, and writes the child pipeline that checks its libraries."""

import argparse
import json
from pathlib import Path

HEAD = """\
# Written by ci/plan.py: a job for each library.
stages: [check, index]
default:
  interruptible: true
"""
JOB = """
{name}:
  stage: check
  script:
    - cd libs/{name}
    - python3 -m unittest -v {name}
    - echo "{name} {version} is good" > ../../{name}.txt
  artifacts:
    paths: [{name}.txt]
"""
INDEX = """
index:
  stage: index
  needs: [{names}]
  script:
    - sort *.txt > index.list
    - test "$(wc -l < index.list)" -eq {count}
  artifacts:
    paths: [index.list]
"""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--versions")
    parser.add_argument("--child", type=Path)
    parser.add_argument("--show", type=Path)
    asked = parser.parse_args()
    if asked.show:
        for name, version in json.loads(asked.show.read_text()).items():
            print(f"{name} {version}")
        return
    libraries = sorted(path.name for path in Path("libs").iterdir() if path.is_dir())
    services = sorted(path.name for path in Path("services").iterdir() if path.is_dir())
    Path("plan.json").write_text(json.dumps(dict.fromkeys(services + libraries, asked.versions)))
    jobs = "".join(JOB.format(name=name, version=asked.versions) for name in libraries)
    asked.child.write_text(HEAD + jobs + INDEX.format(names=", ".join(libraries), count=len(libraries)))


main()
