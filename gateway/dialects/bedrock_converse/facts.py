"""Facts about Bedrock's Converse that other packages need. Requests of this dialect are stored in the format of
chat."""

from gateway.domain.dialect import Dialect

_CREDENTIAL = b"Credential="


def key_in(authorization: bytes) -> bytes:
    """The access key id in the `authorization` header of a request that is signed with AWS Signature Version 4."""
    return authorization.partition(_CREDENTIAL)[2].partition(b"/")[0]


FACTS = Dialect(
    "bedrock_converse",
    text_field="messages",
    image_part="image_url",
    stream_type="application/vnd.amazon.eventstream",
    key_in=key_in,
)
