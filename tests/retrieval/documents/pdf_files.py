"""PDFs written by hand, small enough to be seen through."""

import io
import zlib

from pypdf import PdfReader, PdfWriter


def pdf(*pages, title=""):
    """A PDF with a line of text on each page; a page of None has a picture's frame alone."""
    objects = [b"<</Type/Catalog/Pages 2 0 R>>", b""]
    kids = []
    for text in pages:
        drawn = b"0 0 9 9 re f" if text is None else f"BT /F 12 Tf 9 99 Td ({text}) Tj ET".encode()
        objects.append(stream(drawn))
        objects.append(
            f"<</Type/Page/Parent 2 0 R/MediaBox[0 0 300 200]/Contents {len(objects)} 0 R"
            "/Resources<</Font<</F<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>>>>>>>".encode()
        )
        kids.append(f"{len(objects)} 0 R")
    objects[1] = f"<</Type/Pages/Count {len(kids)}/Kids[{' '.join(kids)}]>>".encode()
    objects.append(f"<</Title({title})>>".encode())
    return assembled(objects)


def stream(content, packed=False):
    body = zlib.compress(content, 9) if packed else content
    extra = b"/Filter/FlateDecode" if packed else b""
    return b"<</Length %d%s>>stream\n%s\nendstream" % (len(body), extra, body)


def assembled(objects):
    out, places = io.BytesIO(), []
    out.write(b"%PDF-1.7\n")
    for number, content in enumerate(objects, 1):
        places.append(out.tell())
        out.write(b"%d 0 obj\n%s\nendobj\n" % (number, content))
    start = out.tell()
    out.write(b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1))
    for place in places:
        out.write(b"%010d 00000 n \n" % place)
    out.write(
        b"trailer<</Size %d/Root 1 0 R/Info %d 0 R>>\nstartxref\n%d\n%%%%EOF\n"
        % (len(objects) + 1, len(objects), start)
    )
    return out.getvalue()


def bomb(size):
    """A page whose drawing unpacks to so many bytes."""
    objects = [
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Count 1/Kids[4 0 R]>>",
        stream(b" " * size, packed=True),
        b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 300 200]/Contents 3 0 R/Resources<<>>>>",
        b"<<>>",
    ]
    return assembled(objects)


def rewritten(data, change):
    """The same PDF after something was done to it."""
    writer = PdfWriter(clone_from=PdfReader(io.BytesIO(data)))
    change(writer)
    out = io.BytesIO()
    writer.write(out)
    return out.getvalue()
