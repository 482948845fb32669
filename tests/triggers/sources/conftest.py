from hypothesis import settings

# A busy machine is no failure: what a test may take is pytest-timeout's business.
settings.register_profile("wakeful", deadline=None)
settings.load_profile("wakeful")
