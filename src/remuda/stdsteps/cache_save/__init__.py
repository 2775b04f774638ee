"""The step `cache_save`: packs files of the working directory into a cache, from which later jobs restore them."""
