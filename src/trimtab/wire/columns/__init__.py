"""Pull bodies as Arrow columns, without a Python object per message.

One walk over the sizes finds where messages begin. numpy then gathers the numbers of all messages at once and judges all
lengths, as `decode_messages` does one by one. Python never touches bodies and text: the borders of the wanted pieces over the
received bytes (wanted, unwanted, wanted, …) make one Arrow array, of which every second element is taken. Properties are packed
together first and cut at their separators, again for all messages at once. Only odd rows (compressed bodies, text that is not
UTF-8, a property named twice) go through `StoredMessage`; their values are put in their places afterwards.

What comes out equals what `decode_messages` gives, errors included; inflating fails here at once instead of on first use.
"""

from trimtab.errors import MissingExtraError

try:
    from trimtab.wire.columns.decode import COLUMNS, INFLATED_TOTAL_BYTES_MAX, SCHEMA, decode_columns
except ModuleNotFoundError as exc:
    raise MissingExtraError('columns need numpy and pyarrow: pip install "trimtab[spark]"') from exc

__all__ = ["COLUMNS", "INFLATED_TOTAL_BYTES_MAX", "SCHEMA", "decode_columns"]
