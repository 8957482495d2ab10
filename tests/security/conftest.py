"""Some of these tests meet real Apache RocketMQ clients; they are marked so."""

from tests.apache.fixtures import java_oracle

__all__ = ["java_oracle"]
