"""What does not come from the page is refused, and what is refused does no harm."""

import json
import re
import sys
from importlib.resources import files

import pytest

from lastiterate.cli import main
from lastiterate.errors import InvalidParameter, MissingExtra
from lastiterate.explore import server
from lastiterate.explore.answers import QUESTIONS
from lastiterate.explore.server import HEADERS, LARGEST_BODY, PRESETS, serve

from .asgi import HOST, TOKEN, USUAL

WORDS = PRESETS["Million-row logistic"]
ASKED = json.dumps({"run": WORDS}).encode()


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8000", "127.0.0.1", "127.0.0.1:8001", "", f"{HOST}.x"]
)
def test_another_host_is_refused(client, host):
    """As after a name that pointed elsewhere was made to point to this computer."""
    for path in ("/", "/page/main.js", "/api/account"):
        reply = client.send("POST", path, body=ASKED, headers=USUAL | {"host": host})
        assert reply.status == 421


def test_no_host_is_refused(client):
    assert client.send("GET", "/", headers={}).status == 421


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", f"https://{HOST}", "http://127.0.0.1:1", ""]
)
def test_another_origin_is_refused(client, origin):
    reply = client.send("POST", "/api/code", body=ASKED, headers=USUAL | {"origin": origin})
    assert reply.status == 403


def test_its_own_origin_is_served(client):
    headers = USUAL | {"origin": f"http://{HOST}"}
    assert client.send("POST", "/api/code", body=ASKED, headers=headers).status == 200


@pytest.mark.parametrize("token", [None, "", "another", TOKEN + "x", TOKEN[:-1]])
def test_without_the_token_nothing_is_answered(client, token):
    headers = {"host": HOST} | ({} if token is None else {"x-lastiterate-token": token})
    assert client.send("POST", "/api/code", body=ASKED, headers=headers).status == 403
    assert client.send("GET", "/api/begin", headers=headers).status == 403
    assert client.send("GET", "/", headers=headers, query=f"token={token or ''}").status == 403


def test_the_page_is_served_with_it(client):
    reply = client.send("GET", "/", headers={"host": HOST}, query=f"token={TOKEN}")
    assert reply.status == 200
    assert b"<!DOCTYPE html>" in reply.body
    assert TOKEN.encode() not in reply.body
    assert "set-cookie" not in reply.headers


def test_all_modules_are_asked_for_at_once():
    folder = files("lastiterate.explore") / "page"
    page = (folder / "index.html").read_text(encoding="utf-8")
    modules = {entry.name for entry in folder.iterdir() if entry.name.endswith(".js")}
    assert set(re.findall(r'(?:href|src)="page/([\w-]+\.js)"', page)) == modules


@pytest.mark.parametrize("path", ["/", "/page/main.js", "/nowhere", "/api/begin"])
def test_every_reply_says_what_the_browser_may_do(client, path):
    for headers in (USUAL, {"host": "evil.example"}):
        reply = client.send("GET", path, headers=headers, query=f"token={TOKEN}")
        for name, value in HEADERS.items():
            assert reply.headers[name.lower()] == value
    assert "default-src 'self'" in HEADERS["Content-Security-Policy"]


class TestLargeBodies:
    BODY = b'{"run": "' + b"x" * 10_000_000 + b'"}'

    def test_are_refused_by_what_they_say_of_themselves(self, client):
        headers = USUAL | {"content-length": str(len(self.BODY))}
        assert client.send("POST", "/api/code", headers=headers).status == 413
        for odd in ("-1", "x", "9" * 5000):
            headers = USUAL | {"content-length": odd}
            assert client.send("POST", "/api/code", headers=headers).status == 413

    def test_are_refused_while_they_come(self, client):
        assert client.send("POST", "/api/code", body=self.BODY, chunk=65_536).status == 413

    def test_the_largest_allowed_is_read(self, client):
        body = ASKED + b" " * (LARGEST_BODY - len(ASKED))
        assert client.send("POST", "/api/code", body=body).status == 200


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b"{",
        b"\xff\xfe",
        b"[" * 400_000,
        b'{"run":' * 100_000,
        b'{"run": NaN}',
        b'{"run": {}, "run": {}}',
        b'{"run": ' + b"9" * 10_000 + b"}",
    ],
)
def test_what_is_no_question_is_refused(client, body):
    reply = client.send("POST", "/api/account", body=body)
    assert reply.status == 400
    assert reply.json()["error"]


@pytest.mark.parametrize("name", ["step_size", "noise_multiplier", "epochs", "examples"])
def test_numbers_that_are_none_are_refused_by_name(client, name):
    for text in ("1e400", "-1e400", "-1", '"nan"', '"<b>"', "[]", "{}", "true"):
        body = json.dumps({"run": {**WORDS, name: "HERE"}}).replace('"HERE"', text).encode()
        reply = client.send("POST", "/api/account", body=body)
        assert reply.status == 400, reply.body
        assert reply.json()["error"].startswith(name)


def test_no_question_makes_the_server_fail(client):
    """Beside what test_answers.py and test_page_runs.py ask."""
    for record in ({}, {"run": WORDS | {"batches": {"kind": "Cyclic"}}},
                   {"run": WORDS | {"domain": {}}}, {"run": WORDS, "nonsense": 1}):  # fmt: skip
        for question in QUESTIONS:
            assert client.ask(question, record).status == 400, (question, record)


def test_there_are_no_other_questions(client):
    assert client.ask("nonsense", {}).status == 404
    assert client.send("GET", "/api/account").status == 405


@pytest.mark.parametrize(
    "name", ["../server.py", "..%2fserver.py", "/etc/passwd", "server.py", "", ".", ".."]
)
def test_no_other_file_is_served(client, name):
    assert client.send("GET", f"/page/{name}").status == 404


MARKUP = "<script>alert(1)</script><img src=x onerror=alert(1)>"


def _marked(value):
    if isinstance(value, dict):
        return {MARKUP + key: _marked(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_marked(one) for one in value]
    return MARKUP if isinstance(value, str) else value


def _marked_one_by_one(value):
    """Copies of a record in which one name or one string is markup."""
    if isinstance(value, str):
        yield MARKUP
    items = value.items() if isinstance(value, dict) else ()
    for key, one in items:
        yield {MARKUP if name == key else name: other for name, other in value.items()}
        for changed in _marked_one_by_one(one):
            yield value | {key: changed}


class TestCertificates:
    def test_the_name_of_a_file_is_not_opened(self, client, tmp_path):
        file = tmp_path / "certificate.json"
        file.write_text("{}")
        for name in (str(file), f" {file}", "../../etc/passwd"):
            told = client.ask("verify", {"certificate": name}).json()
            assert told == {"holds": False, "reasons": ["it is not a JSON object"]}

    def test_deep_ones_do_not_hold(self, client):
        told = client.ask("verify", {"certificate": '{"a":' * 50_000}).json()
        assert told["holds"] is False

    @pytest.mark.parametrize("everywhere", [True, False])
    def test_markup_in_every_string_is_refused_as_text(self, client, certificate, everywhere):
        """In all strings at once, and in one after the other, names of keys included."""
        stated = json.loads(certificate)
        marked = [_marked(stated)] if everywhere else list(_marked_one_by_one(stated))
        assert everywhere or len(marked) > 20
        for one in marked:
            reply = client.ask("verify", {"certificate": json.dumps(one)})
            assert reply.status == 200
            assert reply.headers["content-type"] == "application/json"
            assert reply.headers["x-content-type-options"] == "nosniff"
            assert reply.json()["holds"] is False
            assert reply.json()["reasons"]

    def test_the_untouched_one_holds(self, client, certificate):
        assert client.ask("verify", {"certificate": certificate}).json()["holds"] is True

    @pytest.mark.parametrize("name", ["../../model.json", "/etc/passwd", "..\\model.json", "\0"])
    def test_paths_in_a_certificate_open_nothing(self, client, certificate, name):
        stated = json.loads(certificate)
        for key in [*stated, "model", "path", "file"]:
            told = client.ask("verify", {"certificate": json.dumps(stated | {key: name})}).json()
            assert told["holds"] is False
            assert "root:" not in json.dumps(told)

    def test_nothing_of_an_upload_is_logged(self, client, certificate, capfd):
        client.ask("verify", {"certificate": json.dumps({"secret": MARKUP})})
        client.ask("verify", {"certificate": certificate})
        assert capfd.readouterr() == ("", "")

    def test_uploads_are_not_kept(self, client):
        assert "verify" in server._NOT_CACHED


class TestLaunch:
    """Where the page may be served, and what is missing if it cannot."""

    @pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.7", "example.org", "::"])
    def test_others_cannot_reach_it_without_a_token(self, host):
        with pytest.raises(InvalidParameter, match=r"host must be 127\.0\.0\.1"):
            serve(host=host)

    @pytest.mark.parametrize("token", ["", "short", "ü" * 20])
    def test_a_token_that_can_be_guessed_is_refused(self, token):
        with pytest.raises(InvalidParameter, match="token must be at least 16"):
            serve(host="0.0.0.0", token=token)

    def test_the_extra_is_named_where_it_is_missing(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "uvicorn", None)
        with pytest.raises(MissingExtra, match=r"lastiterate\[explore\]"):
            serve()

    def test_a_run_that_has_no_controls_is_refused_in_one_line(self, tmp_path, capsys):
        file = tmp_path / "run.toml"
        file.write_text(
            'examples = 100\nbatch_size = 50\nbatches = "cyclic"\nsteps = 2\n'
            "step_size = [0.1, 0.2]\nnoise_std = 1.0\nsensitivity = 1.0\nsmoothness = 1.0\n"
        )
        assert main(["explore", "--run", str(file), "--no-browser"]) == 2
        assert "one step size" in capsys.readouterr().err

    def test_the_command_says_what_it_does(self, capsys):
        assert main(["explore", "--help"]) == 0
        said = capsys.readouterr().out
        assert "Example: lastiterate explore --run run.toml" in said
        assert "--no-browser" in said
