"""Puts examples/ on the path, as running a script there does, and gives the tests a small data set."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
sys.path.insert(0, str(EXAMPLES))

SMALL_FILES = {
    "ml-100k.inter": "user_id:token\titem_id:token\trating:float\ttimestamp:float\n"
    "7\t20\t4\t1\n7\t10\t3\t2\n5\t30\t5\t3\n",
    "ml-100k.user": "user_id:token\tage:token\tgender:token\toccupation:token\tzip_code:token\n"
    "5\t17\tF\twriter\t1\n7\t50\tM\tdoctor\t2\n",
    "ml-100k.item": "item_id:token\tmovie_title:token_seq\trelease_year:token\tclass:token_seq\n"
    "10\tA Title\t1990\tDrama War\n20\tNone\tunkonwn\t\n30\tOther\t1998\tComedy\n",
}


@pytest.fixture
def small_files() -> dict[str, str]:
    """Return three files laid out as MovieLens-100k's, made up here: two users, three items, three ratings."""
    return dict(SMALL_FILES)
