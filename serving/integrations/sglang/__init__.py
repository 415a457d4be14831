"""Draft trees for SGLang's n-gram worker."""
