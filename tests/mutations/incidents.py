"""The guard against each incident that other agents had. Without it, the test with the number of its report fails."""

from __future__ import annotations

from tests.mutations.bench import Mutation

_FILE = "tests/policy/test_incidents.py"

INCIDENTS = (
    Mutation(
        "an option that runs a program does nothing",
        "policy/programs_options.py",
        'return unknown(f"`{option.name}` of `{name}` runs another program.")._replace(scripts=scripts)',
        "return Uses()",
        f"{_FILE}::test_cve_2026_28363_an_abbreviated_option_is_the_option",
    ),
    Mutation(
        "a text that is not understood counts as understood",
        "policy/rules.py",
        'or next((command.unread for command in facts.commands if command.unread), "")',
        "",
        f"{_FILE}::test_cve_2026_28460_a_continued_line_does_not_hide_a_substitution",
    ),
    Mutation(
        "a substitution runs nothing",
        "policy/shell_words.py",
        'if kind in ("command_substitution", "process_substitution"):\n            self._run(node)\n',
        'if kind in ("command_substitution", "process_substitution"):\n',
        f"{_FILE}::test_cve_2025_54795_what_follows_an_echo_is_judged",
    ),
    Mutation(
        "a word of unknown value is what it looks like",
        "policy/shell_words.py",
        'is_known = all(piece.kind not in ("unknown", "split") for piece in pieces)',
        "is_known = True",
        f"{_FILE}::test_cve_2026_28463_words_are_judged_as_the_shell_expands_them",
    ),
    Mutation(
        "a wrapper runs nothing",
        "policy/programs_shell.py",
        "return merged([found, Uses(inner=(_inner(command, rest),))]) if rest else found\n\n\ndef _xargs",
        "return found\n\n\ndef _xargs",
        f"{_FILE}::test_cve_2026_27566_a_wrapper_is_looked_into",
    ),
    Mutation(
        "`env` runs nothing",
        "policy/programs_shell.py",
        "found.append(Uses(inner=(_inner(command, rest, tuple(assigned)),)) if rest else Uses())",
        "found.append(Uses())",
        f"{_FILE}::test_cve_2026_31996_cve_2026_32016_cve_2026_53861_a_known_name_vouches_for_nothing_else",
    ),
    Mutation(
        "a command too deep in others passes",
        "policy/commands.py",
        '            unread.append("its commands stand too deep inside of others")\n',
        "",
        f"{_FILE}::test_cve_2026_27183_wrappers_in_wrappers_have_no_depth_at_which_they_pass",
    ),
    Mutation(
        "a folder with the same beginning is the folder",
        "policy/paths.py",
        'path.startswith(root.rstrip("/") + "/")',
        "path.startswith(root)",
        f"{_FILE}::test_cve_2025_54794_a_path_with_the_same_beginning_is_another_place",
    ),
    Mutation(
        "the option of a search that runs a program only reads",
        "policy/programs_search.py",
        'reads="-f= --file= --ignore-file=",\n        runs="--pre= --hostname-bin= -z --search-zip",',
        'reads="-f= --file= --ignore-file= --pre= --hostname-bin=",\n        runs="-z --search-zip",',
        f"{_FILE}::test_cve_2025_58764_a_search_that_runs_a_program_needs_a_person",
    ),
    Mutation(
        "a script of sed may write",
        "policy/programs_languages.py",
        '_SED_FLAGS = re.compile(rf"[gpiIm0-9]*{_SED_END}")',
        '_SED_FLAGS = re.compile(rf"(?:[gpiIm0-9]|w \\w+)*{_SED_END}")',
        f"{_FILE}::test_cve_2025_64755_a_script_of_sed_that_writes_needs_a_person",
    ),
    Mutation(
        "an option with its value in one word overwrites unasked",
        "tools/named.py",
        "        elif word.replaces and is_there and _has_content(real) and not self._is_ours(real):",
        "        elif False:",
        f"{_FILE}::test_cve_2025_66032_separators_and_short_options_are_the_shells_own",
    ),
    Mutation(
        "no `cd` is followed",
        "policy/shell_flow.py",
        "    return Ways(inside, flow)",
        "    return Ways(flow, flow)",
        f"{_FILE}::test_cve_2026_25722_a_change_of_folder_does_not_hide_a_protected_file",
    ),
    Mutation(
        "the target of a link is not judged",
        "tools/named.py",
        "                if stat.S_ISLNK(found.st_mode):\n                    break",
        "                if False:\n                    break",
        f"{_FILE}::test_cve_2026_25724_a_denied_path_is_denied_under_the_name_of_a_link",
    ),
    Mutation(
        "a file that is not there yet is not written",
        "tools/named.py",
        'if not is_there and word.access == "read" and not self._own',
        "if not is_there and not self._own",
        f"{_FILE}::test_cve_2026_25725_settings_that_are_not_there_yet_are_protected",
    ),
    Mutation(
        "a listed host gets what the session has read",
        "policy/taint.py",
        "    if taint.untrusted is None:\n        return None",
        "    if True:\n        return None",
        f"{_FILE}::test_cve_2026_54316_a_listed_host_is_no_way_out_for_what_was_read",
    ),
    Mutation(
        "what lies behind a bound is not looked at",
        "policy/commands.py",
        "    if why:\n        steps += _rough_steps(text)",
        "    if False:\n        steps += _rough_steps(text)",
        f"{_FILE}::test_more_commands_than_anybody_reads_do_not_turn_a_denial_into_a_question",
    ),
    Mutation(
        "every project file is trusted",
        "config/load.py",
        "        if is_trusted or _is_in_force(given, before):",
        "        if True:",
        f"{_FILE}::test_cve_2025_59536_cve_2025_65099_cve_2026_21852_a_project_loosens_nothing_before_it_is_trusted",
    ),
    Mutation(
        "a file of the workspace moves the home",
        "config/paths.py",
        'named = given or environ.get(HOME_VARIABLE, "")',
        'named = given or (Path(".env").read_text().partition("=")[2].strip() if Path(".env").is_file() else "")',
        f"{_FILE}::test_cve_2025_61260_a_file_of_the_workspace_does_not_move_the_home",
    ),
    Mutation(
        "a builtin changes nothing",
        "policy/programs_shell.py",
        "return unknown(why) if name in _RUNS_UNKNOWN else Uses(asks=why)",
        "return Uses()",
        f"{_FILE}::test_cve_2026_22708_a_builtin_does_not_prepare_the_ground_unseen",
    ),
    Mutation(
        "a folder beside an allowed one is allowed",
        "protocol/allowed.py",
        'f"{path}/".startswith(f"{each.path.rstrip(\'/\')}/")',
        "path.startswith(each.path)",
        f"{_FILE}::test_cve_2026_34451_a_folder_beside_the_own_one_is_another_one",
    ),
    Mutation(
        "unknown arguments pass",
        "tools/schema.py",
        '        "additionalProperties": False,',
        '        "additionalProperties": True,',
        f"{_FILE}::test_cve_2026_42074_no_argument_of_a_call_takes_a_gate_away",
    ),
    Mutation(
        "hidden characters pass",
        "policy/rules.py",
        "        if command.hidden:",
        "        if False:",
        f"{_FILE}::test_invisible_and_turning_characters_are_denied",
    ),
)
