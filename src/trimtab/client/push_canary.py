"""What a member knows of the canary that was ordered for its group (`trimtab group canary`): a value that name servers keep."""

import logging

from trimtab.balance.canary_orders import NAMESPACE, read_order
from trimtab.balance.strategies.canary import CanarySetting
from trimtab.client.session import Session
from trimtab.errors import QueryNotFoundError, SettingsError, TrimtabError
from trimtab.wire.codes import RequestCode
from trimtab.wire.headers.base import decode_ext
from trimtab.wire.headers.names import GetKvConfigResponse, KvConfigKey

_log = logging.getLogger(__name__)


class CanaryOrders:
    """Looked at with every look at the group. While nobody answers, or nobody understands the answer, what was ordered last holds."""

    def __init__(self, session: Session, group: str) -> None:
        self._session = session
        self._group = group
        self._text: str | None = None
        self._setting: CanarySetting | None = None

    async def now(self) -> CanarySetting | None:
        """The canary that is ordered, or none."""
        try:
            text = await self._asked()
        except TrimtabError as error:
            _log.info("%s cannot ask for its canary: %s", self._group, error)
            return self._setting
        if text != self._text:
            self._text = text
            try:
                self._setting = None if text is None else read_order(text)
            except SettingsError as error:
                _log.warning(
                    "the canary ordered for %s is no setting: %s; nothing is changed", self._group, error
                )
        return self._setting

    async def _asked(self) -> str | None:
        header = KvConfigKey(namespace=NAMESPACE, key=self._group)
        try:
            answer = await self._session.ask_names(
                RequestCode.GET_KV_CONFIG, header, asked=f"the canary of {self._group}"
            )
        except QueryNotFoundError:
            return None
        return decode_ext(GetKvConfigResponse, answer.ext).value
