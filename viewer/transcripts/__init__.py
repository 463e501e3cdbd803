"""An agent's transcript as a list of steps, whatever program wrote it."""

from viewer.transcripts.steps import Step, transcript_files, transcript_image, transcript_page

__all__ = ["Step", "transcript_files", "transcript_image", "transcript_page"]
