"""OUTBOX_TEST_FUZZ_EXAMPLES=20000: a longer search with hypothesis alone; a run of all tests keeps its usual number."""

import os

from hypothesis import settings

if examples := os.environ.get("OUTBOX_TEST_FUZZ_EXAMPLES"):
    settings.register_profile("fuzz", deadline=None, print_blob=True, max_examples=int(examples))
    settings.load_profile("fuzz")
