"""Jobs that benches compare with. In a folder of their own: Flink puts a script's folder first on the module path."""
