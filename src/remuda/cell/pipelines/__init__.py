"""Creates pipelines (on push, API request, schedule or trigger), compiles their files, and reads their results
(coverage, test reports, releases).
"""
