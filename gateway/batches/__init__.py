"""Many requests at leisure: files of lines, kept and answered one by one through the pipeline."""
