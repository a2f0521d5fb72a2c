"""What may be stored, logged or shown, fuzzed: bounded in size and in time, and planted secrets do not get through."""

import json
import re
import string
import time

from hypothesis import assume, example, given
from hypothesis import strategies as st

from outbox.policy import lossless
from outbox.policy.redact import detail, fingerprint, masked, redact, redact_address, redact_dsn, summary
from outbox.telemetry.redaction import escape, escape_for_json, redactor, shorten
from outbox.web import difference
from tests.unit.fuzz.texts import RICH, TEXT, laid_out
from tests.unit.policy.test_redact import TEXTS

# Longer than what is read of any text, made of what the rules search for: the worst that they can be given.
HOSTILE = st.builds(lambda unit, times: unit * times, RICH.filter(bool), st.integers(1, 3000)).map(lambda t: t[:20_000])
# What a key or a token is made of (RFC 6750); the passwords of DSNs, which hold anything, have a test of their own.
SECRETS = st.text(string.ascii_letters + string.digits + "-._~+/=", min_size=8, max_size=40)
SLOWEST_SECONDS = 1.0  # 5 to 20 ms alone; the machine may be busy


@given(HOSTILE)
def test_no_text_makes_redaction_slow_or_its_result_long(text: str) -> None:
    log = redactor(["correct-horse-battery"])
    for work in (
        redact,
        log,
        redact_dsn,
        redact_address,
        escape,
        escape_for_json,
        shorten,
        lambda t: fingerprint("r", t),
    ):
        started = time.process_time()
        work(text)
        assert time.process_time() - started < SLOWEST_SECONDS, getattr(work, "__name__", "work")
    assert len(redact(text).encode()) <= 2048


# What Elasticsearch says of a value, by test_redact; the last ones are no sentences of its own.
# Numbers and bytes are never a producer's own text.
SENTENCES = [text.replace("{{", "{").replace("}}", "}") for text, _ in TEXTS[:15] if text[0] not in "Ni"]
# A value's own quotes, brackets and words that look like the end of the sentence it stands in.
ENDS = st.sampled_from(
    ["", "] with format [", "] with format [x]", "] as ", "] is ", "] in ", "] for field [x]", "' could not be parsed",
     "': was expecting (x)", '" is malformed', " at [Source: (x", "'", '"', "[", "]", "[a]", "x" * 5000]
)  # fmt: skip
AROUND = st.lists(ENDS | st.text(alphabet="'\"[]{}\\ .:,x\n", max_size=6), max_size=4).map("".join)


@given(st.sampled_from(SENTENCES), AROUND, AROUND)
@example(SENTENCES[0], " at [Source: (x", "")
@example(SENTENCES[0], "", "x" * 5000)
@example(SENTENCES[0], "", "] is ")
def test_no_value_writes_itself_free_of_a_sentence_of_elasticsearch(sentence: str, before: str, after: str) -> None:
    """Regressions: `at [Source:` in a value, a value that was cut because it was long, an end of its own making."""
    secret = "hunter2-canary"
    assert secret not in redact(sentence.replace("{}", f"{before}{secret}{after}"))


# What stands around a secret: no quotes, which would begin a quoted value, and no word that announces another secret.
PLAIN = st.text(string.ascii_letters + " .,;-/", max_size=30).filter(
    lambda text: not re.search(r"(?i)apikey|basic|bearer|token|secret|passw", text)
)
BEFORE = st.sampled_from(
    ["password=", "PASSWORD: ", "my_api_key=", "apikey: ", "client_secret=", "x-token: ", "ApiKey ", "Bearer ",
     "Basic ", "authorization: Bearer ", "Authorization: ApiKey ", 'For input string: "', "Preview of field's value: '",
     'Invalid format: "', "date field [", "Numeric value (", "token '", "value ["]
)  # fmt: skip


@given(PLAIN, BEFORE, SECRETS)
def test_a_planted_secret_is_never_stored(around: str, before: str, secret: str) -> None:
    assume(secret not in around + before)
    text = f"{around} {before}{secret}"
    assert secret not in redact(text)
    assert secret not in summary({"type": "x", "reason": text, "caused_by": {"type": "y", "reason": text}})
    assert secret not in json.dumps(detail({"type": "x", "reason": text}))


@given(
    PLAIN,
    st.sampled_from(["password=", "api_key: ", "token=", "ApiKey ", "Bearer ", "authorization: "]),
    SECRETS,
    PLAIN,
)
# Schemes that the log did not know.
@example("", "authorization: Token ", "hunter2-canary", "")
@example("", "authorization: Digest ", "hunter2-canary", "")
@example("", "authorization: Negotiate ", "hunter2-canary", "")
@example("", "authorization: AWS4-HMAC-SHA256 Credential=AKID, Signature=", "hunter2-canary", "")
@example("", "x-amz-security-token:", "hunter2-canary", "")
@example("", "AWS_SECRET_ACCESS_KEY=", "hunter2-canary", "")
def test_a_planted_secret_never_reaches_the_log(around: str, before: str, secret: str, after: str) -> None:
    assume(secret not in around + before + after)
    assert secret not in redactor()(f"{around} {before}{secret} {after}")


@given(TEXT, SECRETS, TEXT)
def test_a_secret_that_this_process_was_given_never_reaches_the_log_wherever_it_stands(
    before: str, secret: str, after: str
) -> None:
    assert secret not in redactor([secret])(f"{before}{secret}{after}").replace("***", "")


USERS = st.text(string.ascii_lowercase, min_size=1, max_size=8)


@given(USERS, st.text(string.printable.strip() + "é", min_size=6, max_size=30), USERS)
@example("u", "x" * 2000, "h")  # as long as an IAM token: the log showed it
def test_a_dsns_password_is_masked_with_whatever_signs_it_holds(user: str, password: str, host: str) -> None:
    assume(password not in f"postgresql://{user}:***@{host}/db")
    shown = redact_dsn(f"postgresql://{user}:{password}@{host}/db")
    assert password not in shown
    assert host in shown
    text = f"no connection: postgresql://{user}:{password}@{host}/db"
    for masked_by in (redact, redact_dsn, redactor()):
        assert password not in masked_by(text)


@given(laid_out(), st.lists(st.sampled_from(["a", "password", "é", ""]), max_size=3))
def test_a_masked_payload_is_json_without_the_masked_values(payload: bytes, fields: list[str]) -> None:
    shown = masked(payload, fields)
    value = json.loads(shown)
    hidden = {field.casefold() for field in fields}

    def look(inner: object) -> None:
        if isinstance(inner, dict):
            for name, each in inner.items():
                assert name.casefold() not in hidden or each == "***"
                look(each)
        elif isinstance(inner, list):
            for each in inner:
                look(each)

    look(value)
    if not hidden:
        assert shown == payload


@given(st.binary(max_size=200) | laid_out())
def test_anything_is_masked_shown_and_compared_without_a_raise(payload: bytes) -> None:
    masked(payload, ["password"])
    try:
        value = lossless.read(payload)
    except lossless.Unreadable:
        return
    assert lossless.same(value, value)
    assert lossless.compact(value)
    assert list(difference.lines(value))
