"""Work in separate processes: reports and pages, uploads, experiment trackers."""
