import pytest

from remuda.pipeline import PipelineError, SourceProblem, compile_pipeline
from remuda.pipeline.include.includes import MAX_FILES
from remuda.pipeline.include.port import MemorySources


class CountingSources(MemorySources):
    reads = 0

    def project(self, project: str, ref: str | None, file: str) -> str | SourceProblem:
        self.reads += 1
        return super().project(project, ref, file)


@pytest.mark.parametrize("project", ["g/p", "g/missing"])
def test_too_many_files_of_a_project_are_not_all_read(project: str) -> None:
    files = {f"{number}.yml": "" for number in range(2 * MAX_FILES)}
    sources = CountingSources(projects={"g/p": files})
    with pytest.raises(PipelineError, match=f"more than {MAX_FILES} files are included"):
        compile_pipeline(f"include: {{project: {project}, file: [{', '.join(files)}]}}", sources=sources)
    assert sources.reads == MAX_FILES + 1
