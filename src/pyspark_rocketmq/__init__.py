"""Found by Spark under the name `rocketmq`. Kept tiny: Spark imports it in every session."""
