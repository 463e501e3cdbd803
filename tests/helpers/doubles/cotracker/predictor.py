"""Double of ``cotracker.predictor``: a clip is taken to move as a whole, by the shift of its bright part."""

from __future__ import annotations

import torch


class CoTrackerPredictor(torch.nn.Module):
    """Takes the calls of the offline predictor, and refuses those that it would."""

    def __init__(self, checkpoint: str | None = None, offline: bool = True) -> None:
        super().__init__()
        with open(checkpoint, "rb") as file:
            state = torch.load(file, map_location="cpu", weights_only=True)
        self.gain = torch.nn.Parameter(state["gain"])
        self.offline = offline
        self.seen: list[tuple[int, ...]] = []

    def forward(self, video, queries=None, backward_tracking: bool = False):
        """Tracks float32 (1, T, N, 2) and visibility bool (1, T, N) of ``queries`` (1, N, 3), ``(t, x, y)``.

        video : float32 (1, T, 3, H, W) in [0, 255].
        """
        assert self.offline
        assert not self.training
        assert not backward_tracking
        assert video.dtype == queries.dtype == torch.float32
        assert video.ndim == 5
        assert video.shape[:1] == queries.shape[:1] == (1,)
        assert video.shape[2] == queries.shape[2] == 3
        assert video.min() >= 0
        assert video.max() <= 255
        self.seen.append(tuple(queries.shape))
        height, width = video.shape[-2:]
        weight = video[0].mean(dim=1) + 1e-6
        rows, columns = (torch.arange(side, device=video.device) + 0.5 for side in (height, width))
        total = weight.sum(dim=(1, 2))
        x = (weight.sum(dim=1) * columns).sum(dim=1) / total
        y = (weight.sum(dim=2) * rows).sum(dim=1) / total
        centre = torch.stack([x, y], dim=1)
        moved = (centre[:, None] - centre[queries[0, :, 0].long()][None]) * self.gain
        tracks = queries[0, :, 1:] + moved
        inside = (tracks >= 0) & (tracks < torch.tensor([width, height], device=video.device))
        return tracks[None], inside.all(dim=-1)[None]
