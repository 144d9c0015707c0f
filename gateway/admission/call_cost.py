"""The cost of one call as a function of its output tokens, as its hold needs it."""

from __future__ import annotations

from dataclasses import dataclass

from gateway.admission.output_forecast import Forecast
from gateway.domain.backend import Backend
from gateway.domain.money.price import Price
from gateway.domain.routing.route import NOTHING_ATTACHED, Attached
from gateway.domain.units import pico_to_nano_up


@dataclass(slots=True)
class CallCost:
    """The call that money is held for."""

    price: Price
    expectation: Forecast
    backend: Backend
    counted: int
    """Input tokens, counted by us; attachments included."""
    attached: Attached
    input_tokens: int
    """At most, as the backend may count them; images and sound apart."""
    most: int
    """Most tokens that the answer can have, over all choices."""
    cache_writes: bool
    """May the backend charge for writing its prompt cache?"""
    media: bool
    """May the answer be sound or images?"""
    paid: int = 0
    """Output tokens that are held for."""
    capped: bool = False

    def cost(self, output_tokens: int) -> int:
        """Units at most."""
        price, attached = self.price, self.attached
        if attached is not NOTHING_ATTACHED:
            most = price.most(
                *(self.input_tokens, output_tokens),
                cache_writes=self.cache_writes,
                image_input=attached.image,
                audio_input=attached.audio,
                media_output=self.media,
            )
        else:
            most = price.most(self.input_tokens, output_tokens, cache_writes=self.cache_writes, media_output=self.media)
        return pico_to_nano_up(most)

    def affordable(self, units: int) -> int:
        """Output tokens that `units` pay for, beside the input; below zero where not even that."""
        begun = self.cost(0)
        thousand = self.cost(1000) - begun
        return (units - begun) * 1000 // max(thousand, 1)
