"""Sentences for classification: data sets by name or from a user's own files, vocabularies and word vectors."""
