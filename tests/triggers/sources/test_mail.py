"""Mail as the data of an event; hostile mail is bounded and raises nothing."""

import base64
import hashlib
import json
import time
from typing import Any

import pytest

from runs.api.strict_json import require_storable
from triggers.sources import mail
from triggers.sources.html_text import html_to_text
from triggers.sources.mail import attachments_in, read_mail

pytestmark = pytest.mark.sampled

HEAD = (
    b'From: =?utf-8?q?J=C3=BCrgen?= <Juergen@Example.com>\r\nTo: bob@example.org, "Doe, Jane" <jane@example.org>\r\n'
    b"Subject: =?iso-8859-1?q?Gr=FC=DFe?=\r\nMessage-ID: <3@x>\r\nIn-Reply-To: <2@x>\r\nReferences: <1@x>\r\n <2@x>\r\n"
    b"Date: Fri, 20 Nov 2026 10:00:00 +0100\r\nMIME-Version: 1.0\r\n"
)


def multipart(*parts: bytes, kind: bytes = b"mixed") -> bytes:
    inner = b"".join(b"--b\r\n" + part + b"\r\n" for part in parts)
    return b'Content-Type: multipart/%s; boundary="b"\r\n\r\n%s--b--\r\n' % (kind, inner)


def nested(depth: int, inner: bytes) -> bytes:
    begin = b"".join(
        b'Content-Type: multipart/mixed; boundary="b%d"\r\n\r\n--b%d\r\n' % (level, level) for level in range(depth)
    )
    return begin + inner


PLAIN = b"Content-Type: text/plain; charset=utf-8\r\n\r\nHello\r\n"
HTML = b"Content-Type: text/html; charset=iso-8859-1\r\n\r\n<p>Gr\xfc\xdfe</p><script>x()</script><p>Anna</p>"
PDF = (
    b'Content-Type: application/pdf; name="../../etc/bill.pdf"\r\nContent-Disposition: attachment\r\n'
    b"Content-Transfer-Encoding: base64\r\n\r\n" + base64.encodebytes(b"%PDF")
)


def test_people_thread_and_text_of_a_message() -> None:
    found = read_mail(HEAD + PLAIN)

    assert (found.message_id, found.thread_id, found.sender) == ("<3@x>", "<1@x>", "juergen@example.com")
    assert found.data == {
        "message_id": "<3@x>",
        "thread_id": "<1@x>",
        "in_reply_to": "<2@x>",
        "references": ["<1@x>", "<2@x>"],
        "from": {"name": "Jürgen", "address": "juergen@example.com"},
        "reply_to": [],
        "to": [{"name": "", "address": "bob@example.org"}, {"name": "Doe, Jane", "address": "jane@example.org"}],
        "cc": [],
        "subject": "Grüße",
        "sent_at": "2026-11-20T09:00:00+00:00",
        "list_id": "",
        "is_automatic": False,
        "authentication_results": [],
        "text": "Hello",
        "attachments": [],
        "defects": [],
    }


@pytest.mark.parametrize(
    ("head", "thread"),
    [
        (b"Message-ID: <3@x>\r\nReferences: <1@x> <2@x>\r\nIn-Reply-To: <2@x>\r\n", "<1@x>"),
        (b"Message-ID: <3@x>\r\nIn-Reply-To: your message <2@x>\r\n", "<2@x>"),
        (b"Message-ID: <3@x>\r\n", "<3@x>"),
        (
            b"Message-ID: broken\r\n",
            f"sha256:{hashlib.sha256(b'Message-ID: broken' + bytes([13, 10, 13, 10])).hexdigest()}",
        ),
    ],
)
def test_a_thread_has_the_id_of_its_first_message(head: bytes, thread: str) -> None:
    assert read_mail(head + b"\r\n").thread_id == thread


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (HTML, "Grüße\n\nAnna"),
        (multipart(HTML, PLAIN, kind=b"alternative"), "Hello"),
        (multipart(b"Content-Type: text/plain\r\n\r\n \r\n", HTML, kind=b"alternative"), "Grüße\n\nAnna"),
        (multipart(PLAIN, HTML), "Hello\n\nGrüße\n\nAnna"),
        (b"Content-Type: text/plain; charset=x-unknown\r\n\r\nGr\xc3\xbc\xc3\x9fe", "Grüße"),
        (b"Content-Type: text/plain\r\n\r\nGr\xfc\xdfe", "Grüße"),
        (b"Content-Type: text/plain; charset=utf-8\r\n\r\nGr\xfc\xdfe\x00", "Gr\ufffd\ufffde\ufffd"),
        (b"Content-Type: text/plain; charset=idna\r\n\r\na.b", "a.b"),
        (multipart(PLAIN, b"Content-Type: message/rfc822\r\n\r\nSubject: inner\r\n\r\nnot ours"), "Hello"),
    ],
)
def test_the_text_is_what_a_reader_sees(body: bytes, text: str) -> None:
    assert read_mail(HEAD + body).data["text"] == text


def test_attachments_are_named_and_small_ones_are_in_the_data(monkeypatch: Any) -> None:
    monkeypatch.setattr(mail, "LARGEST_CONTENT", 10)
    large = b"Content-Type: image/png; name=a.png\r\nContent-ID: <a>\r\n\r\n" + b"x" * 11
    raw = HEAD + multipart(PLAIN, PDF, large)

    bill, image = read_mail(raw).data["attachments"]

    assert bill == {
        "name": "bill.pdf",
        "type": "application/pdf",
        "size": 4,
        "sha256": hashlib.sha256(b"%PDF").hexdigest(),
        "is_inline": False,
        "content": base64.b64encode(b"%PDF").decode(),
    }
    assert (image["name"], image["size"], image["is_inline"], "content" in image) == ("a.png", 11, True, False)
    assert [one.content for one in attachments_in(raw)] == [b"%PDF", b"x" * 11]


def test_attachments_are_limited_in_number_and_in_total(monkeypatch: Any) -> None:
    monkeypatch.setattr(mail, "MOST_ATTACHMENTS", 6)
    large = b"Content-Type: image/png\r\n\r\n" + b"x" * mail.LARGEST_CONTENT

    data = read_mail(HEAD + multipart(*[large] * 5, PDF, PDF)).data

    assert ["content" in one for one in data["attachments"]] == [True] * 4 + [False] * 2
    assert data["defects"] == ["more than 6 attachments: the rest is left out"]


@pytest.mark.parametrize(
    "head",
    [b"Auto-Submitted: auto-replied", b"Precedence: bulk", b"List-Id: <l.example.org>", b"Return-Path: <>"],
)
def test_mail_of_programs_is_marked(head: bytes) -> None:
    assert read_mail(head + b"\r\n\r\nhi").data["is_automatic"]
    assert not read_mail(b"Auto-Submitted: no\r\n\r\nhi").data["is_automatic"]


HOSTILE = {
    "nothing": b"",
    "every byte": bytes(range(256)) * 1000,
    "10 MB header": HEAD + b"Cc: " + b"a@b.c, " * 1_500_000 + b"\r\n\r\nhi",
    "10 MB of folded header": HEAD + b"X-A: " + b"a\r\n " * 2_500_000 + b"\r\n\r\nhi",
    "10 MB of headers": HEAD + b"A: b\r\n" * 1_700_000 + b"\r\nhi",
    "many long fields": HEAD + (b"To: " + b"a@b," * 4_000 + b"\r\n") * 500 + b"\r\nhi",
    "nested comments": b"From: " + b"(" * 16_000 + b"\r\nContent-Type: " + b"(" * 16_000 + b"\r\n\r\nhi",
    "quotes in all fields": b"".join(
        b"%s: " % name + b'"' * 16_000 + b"\r\n" for name in (b"From", b"Reply-To", b"To", b"Cc")
    )
    + b"\r\nhi",
    "quotes": b"From: " + b'"\\' * 8_000 + b"\r\n\r\nhi",
    "groups": b"From: " + b"a:" * 8_000 + b"\r\n\r\nhi",
    "parameters": HEAD + multipart(*[b"Content-Type: text/plain; " + b"a*0*=b;" * 5_000 + b"\r\n\r\nhi"] * 90),
    "1,000 levels": HEAD + nested(1000, PLAIN),
    "1,000 levels of messages": HEAD + b"Content-Type: message/rfc822\r\n\r\n" * 1000,
    "1,000 parts": HEAD + multipart(*[PLAIN] * 1000),
    "25 MB of lines": HEAD + b"\r\n" + b"\n" * 25_000_000,
    "lines at every level": HEAD + nested(19, b"\r\n" + b"--b1x\r\n" * 390_000),
    "NUL": b"From: a\0b@c\r\nSubject: a\0b\r\nContent-Type: text/plain; charset=\0\r\n\r\na\0b",
    "wrong charsets": b"Subject: =?idna?q?" + b"a." * 8_000 + b"?= =?utf-16?b?AAA?= \xff\xfe\r\n\r\n\xff\xfe",
    "HTML": HEAD + b"Content-Type: text/html\r\n\r\n" + b"<div>" * 300_000 + b"deep",
    "table": HEAD + b"Content-Type: text/html\r\n\r\n<table><tr><td>" + b"a" * 200_000 + b"<tr><td>a<td>b" * 20_000,
    "dates": b"Date: Fri, 20 Nov 99999 10:00:00 +9999\r\n\r\nhi",
    "encodings": HEAD + b"Content-Transfer-Encoding: base64\r\n\r\n" + b"=a" * 5_000_000,
}


SLOW = {"10 MB of headers", "lines at every level", "parameters"}  # some seconds each


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.chaos] if name in SLOW else []) for name in HOSTILE]
)
def test_hostile_mail_is_bounded(name: str) -> None:
    began = time.process_time()

    data = read_mail(HOSTILE[name]).data

    assert time.process_time() - began < (5 if name == "quotes in all fields" else 20)  # quadratic ones take minutes
    require_storable(data)
    assert len(json.dumps(data)) < 2**20


@pytest.mark.parametrize(
    ("html", "text"),
    [
        ("Fish &amp; <b>chips</b>, <i>please</i>.", "Fish & chips, please."),
        ("a<br>b<p>c</p><ul><li>d<li>e</ul>", "a\nb\n\nc\n\nd\ne"),
        ("<style>p {}</style><title>T</title><p>x</p><!-- no -->", "T\n\nx"),
        ("<div>" * 1000 + "deep", "deep"),
        ('<p style="padding-left:999999999em">x</p>', "x"),
        ("", ""),
        ("\ud800\0", "\ufffd\ufffd"),
    ],
)
def test_html_is_converted_to_text(html: str, text: str) -> None:
    assert html_to_text(html) == text
