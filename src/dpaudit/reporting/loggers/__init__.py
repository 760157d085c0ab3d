"""Results where people already keep theirs: a dict, MLflow, TensorBoard."""
