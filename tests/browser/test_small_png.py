"""A picture for the repository shows the same as the browser's own, in a fraction of the bytes."""

import base64

from tests.browser.chromium import Chromium
from tests.browser.small_png import small

STRIPES = """
data:text/html,<body style="margin:0"><div style="width:40px;height:30px;background:rgb(200,10,30)"></div>
<p style="position:absolute;top:0;left:60px;font:20px sans-serif">text</p>
"""
COUNT = """
(async () => {
  const draw = async (data) => {
    const picture = new Image();
    picture.src = "data:image/png;base64," + data;
    await picture.decode();
    const canvas = document.createElement("canvas");
    [canvas.width, canvas.height] = [picture.width, picture.height];
    const context = canvas.getContext("2d");
    context.drawImage(picture, 0, 0);
    return context.getImageData(0, 0, canvas.width, canvas.height).data;
  };
  const [a, b] = [await draw("%s"), await draw("%s")];
  return [a.length, b.length, a.filter((value, at) => value !== b[at]).length];
})()
"""


async def test_no_pixel_differs(browser: Chromium) -> None:
    """Chromium decodes both to the same pixels, if there are few colours."""
    async with browser.tab(width=200, height=100) as tab:
        await tab.open(STRIPES.replace("\n", ""))
        whole = await tab.picture()
        assert len(small(whole)) < len(whole)
        one, other = (base64.b64encode(png).decode() for png in (whole, small(whole)))
        assert await tab.evaluate(COUNT % (one, other)) == [80000, 80000, 0]
