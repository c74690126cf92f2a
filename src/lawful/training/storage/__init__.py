"""What a run keeps on disk, and how it is written so that nothing is lost."""
