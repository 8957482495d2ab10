"""Ready PySpark pipelines on RocketMQ: see `trimtab.pipelines.streams`."""
