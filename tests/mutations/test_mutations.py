"""Every mutation of the table fits the code, and the tests notice it."""

from __future__ import annotations

import pytest

from tests.mutations.bench import Bench, Mutation, misfit
from tests.mutations.table import MUTATIONS


def test_every_mutation_fits_the_code_and_names_tests_that_there_are() -> None:
    assert not [f"{each.name}: {told}" for each in MUTATIONS if (told := misfit(each))]
    assert len({each.name for each in MUTATIONS}) == len(MUTATIONS)


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    made = Bench(tmp_path_factory.mktemp("mutations"))
    sound = made.run(name for each in MUTATIONS for name in each.tests.split())
    assert sound.how == "passed", sound.output
    return made


@pytest.mark.long
@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda each: each.name)
def test_the_tests_notice(bench: Bench, mutation: Mutation) -> None:
    verdict = bench.try_out(mutation)
    assert verdict.how == "failed", verdict.output
