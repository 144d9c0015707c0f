export const pt = {};
