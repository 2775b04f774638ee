from remuda.pipeline import Artifacts


def test_uploads_of_an_archive() -> None:
    artifacts = Artifacts(paths=("out",), exclude=("tmp",), name="n", expire_in="1 day", when="always")
    assert artifacts.uploads() == [
        {
            "name": "n",
            "untracked": False,
            "paths": ["out"],
            "exclude": ["tmp"],
            "when": "always",
            "expire_in": "1 day",
            "artifact_type": "archive",
            "artifact_format": "zip",
        }
    ]


def test_uploads_of_reports() -> None:
    uploads = Artifacts(paths=(), reports={"junit": ("a.xml", "b.xml"), "sast": ("s.json",), "lsif": ("l",)}).uploads()
    assert [(each["name"], each["artifact_type"], each["artifact_format"]) for each in uploads] == [
        ("junit.xml", "junit", "gzip"),
        ("gl-sast-report.json", "sast", "raw"),
        ("lsif.json", "lsif", "zip"),
    ]
    assert uploads[0]["paths"] == ["a.xml", "b.xml"]
    assert uploads[0]["when"] == "always"
