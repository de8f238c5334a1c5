"""Promises about what the git tools run and read."""

from __future__ import annotations

from tests.mutations.bench import Mutation

_TESTS = "tests/tools/test_git.py"

GIT = (
    Mutation(
        "git gets the config of the repository",
        "tools/repository.py",
        "if key in KEPT_KEYS and _VALUE.match(value):",
        "if section and name:",
        f"{_TESTS}::test_no_program_of_the_config_runs",
    ),
    Mutation(
        "`.git` may lead anywhere",
        "tools/repository.py",
        "is_users = _leads_back(folder, entry, own)",
        "is_users = True",
        f"{_TESTS}::test_a_git_entry_that_leads_out_is_refused",
    ),
    Mutation(
        "the copy of the index is newer than the index",
        "tools/repository.py",
        "    os.utime(to, ns=(facts.st_mtime_ns, facts.st_mtime_ns))\n",
        "",
        f"{_TESTS}::test_a_change_in_the_second_of_the_index_is_seen",
    ),
    Mutation(
        "a diff shows secret files",
        "tools/git.py",
        'without = [f":(exclude,literal){name}" for name in left_out]',
        "without = []",
        f"{_TESTS}::test_a_diff_leaves_out_secret_files_and_names_them",
    ),
    Mutation(
        "a revision may be an option",
        "tools/git.py",
        '_REVISION = re.compile(r"[A-Za-z0-9_@][',
        '_REVISION = re.compile(r"[A-Za-z0-9_@=-][',
        f"{_TESTS}::test_what_is_not_a_revision_is_refused",
    ),
)
